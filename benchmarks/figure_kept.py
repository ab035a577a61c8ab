"""The table of a recipe on questions that were kept apart (`bench_kept.py`)."""

from collections.abc import Iterable
from typing import Any

from figure_cells import read_results, spread, tested_difference, to_table

_MEASURES = {"hit1": "Hit@1", "hit3": "Hit@3", "hit10": "Hit@10", "mrr": "MRR"}
_POLICIES = {
    "question, words (BM25)": "question",
    "question, key words": "question_keywords",
    "question, vectors (`dense`)": "dense",
    "question, words and vectors (`hybrid`)": "hybrid",
    "`templates`, words and vectors": "templates+hybrid",
    "`features` over words and vectors": "features",
    "tuned query writer": "tuned",
    "tuned query writer, words and vectors": "tuned+hybrid",
    "**question, reranked**": "rerank",
}


def write_headline() -> str:
    """Hit@1 and MRR of what a newcomer would compare."""
    sets = read_results("kept")["sets"]
    policies = [(text, policy) for text, policy in _POLICIES.items() if policy not in ("question_keywords", "dense")]
    rows = [
        [text, *(_write_cell(found["all"]["policies"][policy], ("hit1", "mrr")) for found in sets.values())]
        for text, policy in policies
    ]
    return to_table(["Hit@1 MRR", *(f"{name} ({found['all']['questions']:,} questions)" for name, found in sets.items())], rows)


def write_table() -> str:
    """The values of each policy on all questions of a set, and on those whose pages training has not read."""
    sets = read_results("kept")["sets"]
    parts = [
        (f"{name}, {part} ({found[part]['questions']:,})", found[part])
        for name, found in sets.items()
        for part in ("all", "apart")
        if part == "all" or found[part]["questions"] < found["all"]["questions"]
    ]
    rows = [[text, *(_write_cell(found["policies"][policy]) for _, found in parts)] for text, policy in _POLICIES.items()]
    for measure, name in _MEASURES.items():
        above = (found["policies"]["rerank"]["above_best_without_language_model"][measure] for _, found in parts)
        rows.append([f"reranked above the best without a language model, {name}", *(tested_difference(one) for one in above)])
    rows.append(["the best without a language model (MRR)", *(f"`{found['best']}`" for _, found in parts)])
    return to_table(["Hit@1 Hit@3 Hit@10 MRR", *(name for name, _ in parts)], rows)


def _write_cell(row: Any, measures: Iterable[str] = tuple(_MEASURES)) -> str:
    return " ".join(spread(row[measure]) for measure in measures)
