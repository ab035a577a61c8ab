"""The table of what more training questions bring."""

from collections import defaultdict
from statistics import mean
from typing import Any

from figure_cells import read_results, short, to_paragraph, to_table
from figure_quality import EFFECT_MEASURES, LARGE

_POLICIES = ("neighbours", "templates")
_SET = "medquad"
_TUNED, _RERANKED = "tuned", "rerank"

Row = dict[str, Any]


def write_table() -> str:
    """Results by the number of questions that were learned from."""
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


def write_model_terms() -> str:
    """The terms of the table of a model."""
    return to_paragraph(
        f"""{LARGE} after one round of SFT on additions that beat the question, its own and proposed ones; the same held-out
        questions, one draw, one seed. `templates` made its proposals from all training questions of {_SET}, so the table shows
        the effect of collecting more questions, not of having more:"""
    )


def write_model_table() -> str:
    """Results of a model by the number of collected questions that it has learned from."""
    policies = {"words": _read_model_rows(_TUNED), "words and vectors": _read_model_rows(f"{_TUNED}+hybrid")}
    header = ["collected questions"]
    for text in policies:
        header += [f"{text}: Hit@1", "Hit@3", "Hit@10", "MRR"]
    cells = [
        [f"{number:,}", *(short(rows[number][measure]) for rows in policies.values() for measure in EFFECT_MEASURES)]
        for number in policies["words"]
    ]
    return to_table(header, cells)


def write_reranker_table() -> str:
    """Results of a reranker on the question's pages, by the number of questions that it has learned from."""
    header = ["questions learned from", "seconds of the GPU", "Hit@1", "Hit@3", "Hit@10", "MRR"]
    cells = [
        [f"{number:,}", f"{row['gpu_s']}", *(short(row[measure]) for measure in EFFECT_MEASURES)]
        for number, row in _read_model_rows(_RERANKED).items()
    ]
    return to_table(header, cells)


def _read_model_rows(policy: str) -> dict[int, Row]:
    """Those of a policy of the model, by the number of collected questions."""
    rows = [
        row
        for row in read_results("learning_curve")["rows"]
        if (row["set"], row["model"], row["policy"]) == (_SET, LARGE, policy)
    ]
    return {row["train_questions"]: row for row in sorted(rows, key=lambda row: row["train_questions"])}


def _write_cells(rows: list[Row]) -> list[str]:
    cells = [short(mean(row[measure] for row in rows)) for measure in EFFECT_MEASURES]
    found = [row["mrr"] for row in rows]
    return [*cells[:-1], cells[-1] + (f" ({short(min(found))} to {short(max(found))})" if len(found) > 1 else "")]


def _read_rows() -> list[Row]:
    rows: list[Row] = read_results("learning_curve")["rows"]
    return [row for row in rows if row["set"] == _SET and row["policy"] in _POLICIES]
