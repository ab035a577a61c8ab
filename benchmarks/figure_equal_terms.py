"""The table of searches that need no training, and of what a reranker makes of them, at equal terms."""

from typing import Any

from figure_cells import name_gpu, read_results, short, to_paragraph, to_table

_MEASURES = ("hit1", "hit3", "hit10", "mrr")
_SETS = ("medquad", "fairytaleqa")
SEARCHES = {
    "the question by words (BM25)": "question",
    "by vectors (`dense`)": "dense",
    "by both (`hybrid`)": "hybrid",
    "by words, reranked": "rerank",
    "by both, reranked": "hybrid+rerank",
}
"""Those that write nothing, with their policies."""


def write_equal_terms_terms() -> str:
    """What the table is of."""
    sets = read_results("equal_terms")["sets"]
    asked = " and ".join(f"{sets[name]['questions']} of {name}" for name in _SETS)
    rerank = sets["medquad"]["terms"]["rerank"]
    return to_paragraph(
        f"""The same held-out questions, drawn ({asked}; as many as there was time for), the same pages, ten places
        (`benchmarks/results/equal_terms.json`, `bench_equal_terms.py`, an {name_gpu(sets["medquad"])}; all-MiniLM-L6-v2 embeds,
        Qwen2.5-Coder-1.5B-Instruct is asked for yes or no of the best {rerank["depth"]} pages; * differs from the question at p <
        .01 after Holm over the table, resampled by document). SmolLM2-135M was trained for it on what a round of the recipe
        collects from {sets["medquad"]["training"]["questions"]:,} questions of the set, with each policy's best weight of the
        question:"""
    )


def write_equal_terms() -> str:
    """What each search finds, and beside it what a small model adds, as far as it was measured."""
    found = {(row["set"], row["policy"]): row for row in read_results("equal_terms")["rows"]}
    added = {"by words, with what SmolLM2-135M adds": "base", "by words, with what it adds when tuned": "tuned"}
    rows = [[text, *(_write_cell(found.get((name, policy))) for name in _SETS)] for text, policy in (SEARCHES | added).items()]
    return to_table(["Hit@1 / Hit@3 / Hit@10 / MRR", *_SETS], rows)


def write_equal_terms_words() -> str:
    """What the table says."""
    results = read_results("equal_terms")
    rows = {(row["set"], row["policy"]): row for row in results["rows"]}
    seconds = [results["sets"][name]["seconds_a_question"]["rerank"] for name in _SETS]

    def write_gain(name: str, policy: str, beside: str = "vs_question") -> str:
        value, low, high = rows[name, policy][beside]["mrr"][:3]
        return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]".replace("0.", ".")

    return to_paragraph(
        f"""Which search is best depends on the collection: vectors find far more than words on medquad (MRR
        {write_gain("medquad", "dense")}) and far less on fairytaleqa ({write_gain("fairytaleqa", "dense")}). The reranker
        makes both orders worse: a model that was not trained to rank is asked, in the prompt of one that was. It took
        {seconds[0]:.1f} and {seconds[1]:.1f} s a question, while other work shared the GPU. On medquad what the tuned model adds
        brings words as far as vectors: MRR {write_gain("medquad", "tuned")} above the question,
        {write_gain("medquad", "hybrid", "tuned_above")} above both together, and
        {write_gain("medquad", "dense", "tuned_above")} above vectors, which so few questions cannot tell from nothing. On
        fairytaleqa it adds nothing to its base ({write_gain("fairytaleqa", "base", "tuned_above")})."""
    )


def _write_cell(row: Any) -> str:
    if row is None:
        return ""
    tests = row["vs_question"] or {}
    return " ".join(short(row[name]) + ("*" if name in tests and tests[name][-1] < 0.01 else "") for name in _MEASURES)
