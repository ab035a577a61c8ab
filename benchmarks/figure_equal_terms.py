"""The table of searches that need no training, and of what a reranker makes of them, at equal terms."""

from typing import Any

from figure_cells import read_results, short, to_paragraph, to_table
from figure_quality import find_effect

_MEASURES = ("hit1", "hit3", "hit10", "mrr")
_SETS = ("medquad", "fairytaleqa")


def write_equal_terms_terms() -> str:
    """What the table is of."""
    sets = read_results("equal_terms")["sets"]
    asked = " and ".join(f"{sets[name]['questions']} of {name}" for name in _SETS)
    rerank = sets["medquad"]["terms"]["rerank"]
    return to_paragraph(
        f"""The same held-out questions, drawn ({asked}; as many as there was time for), the same pages, ten places
        (`benchmarks/results/equal_terms.json`, `bench_equal_terms.py`, an H100; all-MiniLM-L6-v2 embeds,
        Qwen2.5-Coder-1.5B-Instruct is asked for yes or no of the best {rerank["depth"]} pages; * differs from the question at p <
        .01 after Holm over the table, resampled by document). SmolLM2-135M was not asked these questions alone: its rows and the
        question's last one are of all {find_effect("medquad", "question")["n"]:,} and
        {find_effect("fairytaleqa", "question")["n"]:,} held-out questions, from which these were drawn (`effect.json`):"""
    )


def write_equal_terms() -> str:
    """What each search finds, and beside it what a small model adds, as far as it was measured."""
    found = {(row["set"], row["policy"]): row for row in read_results("equal_terms")["rows"]}
    searches = {
        "the question by words (BM25)": "question",
        "by vectors (`dense`)": "dense",
        "by both (`hybrid`)": "hybrid",
        "by words, reranked": "rerank",
        "by both, reranked": "hybrid+rerank",
    }
    rows = [[text, *(_write_cell(found[name, policy]) for name in _SETS)] for text, policy in searches.items()]
    models = {
        "all held-out questions: by words": ("question", ""),
        "question + what SmolLM2-135M adds": ("base", "embedded"),
        "question + what SmolLM2-135M adds when tuned": ("tuned", "embedded"),
    }
    for text, (policy, model) in models.items():
        rows.append([text, *(_write_cell(find_effect(name, policy, model)) for name in _SETS)])
    return to_table(["Hit@1 / Hit@3 / Hit@10 / MRR", *_SETS], rows)


def write_equal_terms_words() -> str:
    """What the table says."""
    results = read_results("equal_terms")
    rows = {(row["set"], row["policy"]): row for row in results["rows"]}
    seconds = [results["sets"][name]["seconds_a_question"]["rerank"] for name in _SETS]

    def write_gain(name: str, policy: str) -> str:
        value, low, high = rows[name, policy]["vs_question"]["mrr"][:3]
        return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]".replace("0.", ".")

    return to_paragraph(
        f"""Which search is best depends on the collection: vectors find far more than words on medquad (MRR
        {write_gain("medquad", "dense")}) and far less on fairytaleqa ({write_gain("fairytaleqa", "dense")}). This reranker, which
        was not trained to rank, helps neither: beside the order by words MRR {write_gain("medquad", "rerank")} on medquad, which
        chance alone can make, and {write_gain("fairytaleqa", "rerank")} on fairytaleqa. It took {seconds[0]:.1f} and
        {seconds[1]:.1f} s a question, while two of them shared the GPU with other work. A model that was trained to rank was not
        at hand, and the small model's rows on the drawn questions alone are not measured."""
    )


def _write_cell(row: Any) -> str:
    if row is None:
        return ""
    tests = row["vs_question"] or {}
    return " ".join(short(row[name]) + ("*" if name in tests and tests[name][-1] < 0.01 else "") for name in _MEASURES)
