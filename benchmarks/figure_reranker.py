"""The table of what a trained reranker finds."""

from typing import Any

from figure_cells import name_gpu, read_results, short, to_paragraph, to_table
from figure_equal_terms import SEARCHES

_MEASURES = ("hit1", "hit3", "hit10", "mrr")
_SET = "fairytaleqa"


def write_terms() -> str:
    """What the table is of."""
    found = _read_set()
    trained, rerank = found["training"], found["terms"]["rerank"]
    return to_paragraph(
        f"""{found["questions"]} held-out questions of {_SET}, drawn (as many as there was time for), the same
        {found["terms"]["pages"]:,} pages, ten places (`benchmarks/results/trained_reranker.json`, `bench_equal_terms.py`, one
        {name_gpu(found)}, one seed). Qwen2.5-Coder-1.5B-Instruct was trained on {trained["rows"]:,} rows of
        {trained["questions"] - trained["validation_questions"]:,} training questions, {trained["steps"]} steps in
        {trained["seconds"]} s, and reads the best {rerank["depth"]} pages. 95 % intervals by document, p after Holm over the
        table:"""
    )


def write_table() -> str:
    """What each search finds."""
    rows = {row["policy"]: row for row in read_results("trained_reranker")["rows"]}
    cells = [
        [text, *(short(rows[policy][name]) for name in _MEASURES), *(_write_gain(rows[policy], name) for name in ("hit3", "mrr"))]
        for text, policy in SEARCHES.items()
    ]
    return to_table(["", "Hit@1", "Hit@3", "Hit@10", "MRR", "Hit@3 above the question", "MRR above the question"], cells)


def write_words() -> str:
    """What the table says, and what it costs."""
    found = _read_set()
    untrained = {row["policy"]: row for row in read_results("equal_terms")["rows"] if row["set"] == _SET}
    asked = read_results("equal_terms")["sets"][_SET]["questions"]
    return to_paragraph(
        f"""The same model without that training puts the pages in a worse order than they had (MRR
        {short(untrained["rerank"]["mrr"])}, of the best {read_results("equal_terms")["sets"][_SET]["terms"]["rerank"]["depth"]}
        pages, {asked} questions), and what it adds to the question gains little there ({short(untrained["base"]["mrr"])} with
        SmolLM2-135M, the question {short(untrained["question"]["mrr"])}). Reading took
        {found["seconds_a_question"]["rerank"]:.2f} s a question on that GPU. A reranker that somebody else has trained was not
        measured beside it."""
    )


def write_doubt_words() -> str:
    """What became of rerankers that had not learned, and how that is seen."""
    results = read_results("recipe_medquad_reranker")
    losses = {(row["set"], row["model"].partition("-")[0]): row for row in results["rerankers"]}
    small, large, manuals = losses["medquad", "SmolLM2"], losses["medquad", "Qwen2.5"], losses["manuals", "Qwen2.5"]
    found = {name: short(results["test"]["policies"][name]["hit3"][0]) for name in ("hybrid", "rerank")}
    return to_paragraph(
        f"""Not every model learns it. The loss counts an answer and what ends it, so with one page of evidence to four others a
        reranker that knows nothing ends at .250. After {large["rows"]:,} rows of medquad the 1.5B model is at
        {short(large["eval_loss_after"])}, SmolLM2-135M at {short(small["eval_loss_after"])}: its order of what is found by both
        has a Hit@3 of {found["rerank"]}, the order that they had {found["hybrid"]} ({results["test"]["questions"]:,} held-out
        questions, `recipe_medquad_reranker.json`). On the manuals the 1.5B model came to
        {short(manuals["eval_loss_after"])} after {manuals["rows"]:,} rows; what it finds there was not measured. `finetune`
        says so where the loss stays near that of the
        shares alone."""
    )


def _read_set() -> Any:
    return read_results("trained_reranker")["sets"][_SET]


def _write_gain(row: Any, name: str) -> str:
    if not row["vs_question"]:
        return ""
    value, low, high, _, adjusted = row["vs_question"][name]
    p = f"p = {short(adjusted, 4 if adjusted < 0.001 else 3)}"
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}], {p}".replace("0.", ".")
