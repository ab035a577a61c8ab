"""The table of searches that need no training, and of what a reranker makes of them, at equal terms."""

from typing import Any

from figure_cells import read_results, short, to_table

_MEASURES = ("hit1", "hit3", "hit10", "mrr")
_SETS = ("medquad", "fairytaleqa")
SEARCHES = {
    "question, words (BM25)": "question",
    "question, vectors (`dense`)": "dense",
    "question, words and vectors (`hybrid`)": "hybrid",
    "question, words, reranked": "rerank",
    "question, words and vectors, reranked": "hybrid+rerank",
}
"""Those that write nothing, with their policies."""


def write_equal_terms() -> str:
    """Results of each search, and beside them those of a small model, as far as they were measured."""
    found = {(row["set"], row["policy"]): row for row in read_results("equal_terms")["rows"]}
    added = {"SmolLM2-135M as query writer, words": "base", "the same, tuned": "tuned"}
    rows = [[text, *(_write_cell(found.get((name, policy))) for name in _SETS)] for text, policy in (SEARCHES | added).items()]
    return to_table(["Hit@1 / Hit@3 / Hit@10 / MRR", *_SETS], rows)


def _write_cell(row: Any) -> str:
    if row is None:
        return ""
    tests = row["vs_question"] or {}
    return " ".join(short(row[name]) + ("*" if name in tests and tests[name][-1] < 0.01 else "") for name in _MEASURES)
