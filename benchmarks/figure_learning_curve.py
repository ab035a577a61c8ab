"""The table of what more training questions bring."""

from collections import defaultdict
from statistics import mean
from typing import Any

from figure_cells import read_results, short, to_paragraph, to_table
from figure_quality import AGAIN_RUN, EFFECT_MEASURES, LARGE, RERANKER_RUN, find_reranked

_POLICIES = ("neighbours", "templates")
_SET = "medquad"
_TUNED, _RERANKED = "tuned", "rerank"

Row = dict[str, Any]


def write_terms() -> str:
    """What the table is of."""
    rows = _read_rows()
    draws = max(row["draw"] for row in rows) + 1
    return to_paragraph(
        f"""The {rows[0]["n"]:,} held-out questions of {_SET}, the first search; means of {draws} draws of the training questions,
        of their MRR the lowest and the highest too (`benchmarks/results/learning_curve.json`, `bench_learning_curve.py`, no
        GPU):"""
    )


def write_table() -> str:
    """What is found by what was learned from so many questions."""
    by_number: dict[int, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in _read_rows():
        by_number[row["train_questions"]][row["policy"]].append(row)
    header = ["training questions"]
    for policy in _POLICIES:
        header += [f"`{policy}` Hit@1", "Hit@3", "Hit@10", "MRR"]
    cells = [
        [f"{number:,}", *(cell for policy in _POLICIES for cell in _write_cells(of_policy[policy]))]
        for number, of_policy in sorted(by_number.items())
    ]
    return to_table(header, cells)


def write_words() -> str:
    """What the table says."""
    gains = {policy: _compute_gains(policy) for policy in _POLICIES}
    templates, neighbours = gains["templates"], gains["neighbours"]
    all_questions = max(templates)
    least, enough = (
        min(number for number, gain in templates.items() if gain > share * templates[all_questions]) for share in (0.5, 0.9)
    )
    row = _read_rows()[0]
    question = row["mrr"] - row["vs_question"]["mrr"][0]
    harmed = [f"{number} questions" for number, gain in neighbours.items() if gain < 0]
    return to_paragraph(
        f"""The question alone has an MRR of {short(question)}. Half of what `templates` gains with all questions is there with
        {least:,} of them, nine tenths with {enough:,}. It adds nothing where it has seen too little; `neighbours` does, and what
        it has learned from {" and ".join(harmed)} did more harm than good."""
    )


def write_model_terms() -> str:
    """What the table of a model is of."""
    return to_paragraph(
        f"""{LARGE}, SFT in one round of the recipe on the additions that beat the question, its own and proposed, and the same
        held-out questions; one draw, one seed. The proposals of `templates` are made from all training questions of {_SET}, so
        that this is what more collected questions teach a model, not what there is to know from so many:"""
    )


def write_model_table() -> str:
    """What is found with what a model has learned from so many collected questions."""
    policies = {"words": _read_model_rows(_TUNED), "words and vectors": _read_model_rows(f"{_TUNED}+hybrid")}
    header = ["collected questions"]
    for text in policies:
        header += [f"{text}: Hit@1", "Hit@3", "Hit@10", "MRR"]
    cells = [
        [f"{number:,}", *(short(rows[number][measure]) for rows in policies.values() for measure in EFFECT_MEASURES)]
        for number in policies["words"]
    ]
    return to_table(header, cells)


def write_model_words() -> str:
    """What the table of a model says."""
    base = find_reranked(_SET, "base", run=RERANKER_RUN)["mrr"]
    gains = {number: row["mrr"] - base for number, row in _read_model_rows(_TUNED).items()}
    last = max(gains)
    enough = min(number for number, gain in gains.items() if gain > 0.9 * gains[last])
    return to_paragraph(
        f"""Untrained the model comes to an MRR of {short(base)}. Nine tenths of what {last:,} questions add to that is there with
        {enough:,}."""
    )


def write_reranker_table() -> str:
    """What a reranker makes of the question's pages with what it has learned from so many questions."""
    header = ["questions learned from", "seconds of the GPU", "Hit@1", "Hit@3", "Hit@10", "MRR"]
    cells = [
        [f"{number:,}", f"{row['gpu_s']}", *(short(row[measure]) for measure in EFFECT_MEASURES)]
        for number, row in _read_model_rows(_RERANKED).items()
    ]
    return to_table(header, cells)


def write_reranker_words() -> str:
    """What the table of a reranker is of, and what it says."""
    rows = _read_model_rows(_RERANKED)
    best = find_reranked(_SET, rows[max(rows)]["best_untrained"], run=AGAIN_RUN)
    enough = min(number for number, row in rows.items() if row["mrr"] > best["mrr"])
    below = max(number for number in rows if number < enough)
    validation = read_results("recipe_medquad_reranker")["counts"]["reranker/finetune"]["validation_rows"]
    return to_paragraph(
        f"""The recipe's reranker ({LARGE}, {_SET}, one training each with a `finetune.limit` of 500, 2,000 and the recipe's
        8,000 pages; the question's pages by words and vectors, put in its order). The seconds are those in which a GPU, an H200,
        was busy with the training, the loss of {validation} validation questions before and after among them. The best search
        that was not trained, `{best["policy"]}`, has a Hit@3 of {short(best["hit3"])} and an MRR of {short(best["mrr"])}: with
        {below} questions a reranker is below it, with {enough:,} above. So a reranker wants some hundred questions, and minutes
        of a GPU:"""
    )


def _read_model_rows(policy: str) -> dict[int, Row]:
    """Those of a policy of the model, by the number of collected questions."""
    rows = [
        row
        for row in read_results("learning_curve")["rows"]
        if (row["set"], row["model"], row["policy"]) == (_SET, LARGE, policy)
    ]
    return {row["train_questions"]: row for row in sorted(rows, key=lambda row: row["train_questions"])}


def _compute_gains(policy: str) -> dict[int, float]:
    """The mean gain of a policy's MRR over the question's, by the number of training questions."""
    gains: dict[int, list[float]] = defaultdict(list)
    for row in _read_rows():
        if row["policy"] == policy:
            gains[row["train_questions"]].append(row["vs_question"]["mrr"][0])
    return {number: mean(found) for number, found in sorted(gains.items())}


def _write_cells(rows: list[Row]) -> list[str]:
    cells = [short(mean(row[measure] for row in rows)) for measure in EFFECT_MEASURES]
    found = [row["mrr"] for row in rows]
    return [*cells[:-1], cells[-1] + (f" ({short(min(found))} to {short(max(found))})" if len(found) > 1 else "")]


def _read_rows() -> list[Row]:
    rows: list[Row] = read_results("learning_curve")["rows"]
    return [row for row in rows if row["set"] == _SET and row["policy"] in _POLICIES]
