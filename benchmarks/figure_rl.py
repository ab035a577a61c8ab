"""The table of reinforcement learning: what is found after so many minutes of a GPU."""

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from figure_cells import read_results, short, spread, tested_difference, to_table

_FILES = ("rl", "rl_manuals", "rl_rounds", "rl_smollm2")
"""What `bench_rl.py` has written."""
_RECORDED = {"1.5B": "recipe_manuals_grpo", "135M": "recipe_manuals_grpo_smollm2"}
_MEASURES = ("hit1", "hit3", "hit10", "mrr")
_LAST_OF_TWO = "recipe round2"


def write_minutes() -> str:
    """Rows of one set and model follow each other; a training's minutes are its own, or the mean of its seeds."""
    rows = [row for name in _FILES for row in _write_trainings(name)]
    rows += [row for model, name in _RECORDED.items() for row in _write_recorded(model, name)]
    return to_table(["", "", "minutes", "Hit@1", "Hit@3", "Hit@10", "MRR", "MRR above the model"], rows)


def _write_trainings(name: str) -> Iterator[list[str]]:
    for of, table in read_results(name)["sets"].items():
        model = "135M" if "SmolLM2" in table["models"][0] else "1.5B"
        where = f"{of}, {table['questions']:,} questions, {model}"
        for policy, row in table["rows"].items():
            if policy == "recipe round1":  # its minutes are those of both rounds
                continue
            minutes = _find_minutes(table["rows"], policy)
            above = row.get("above_base", {}).get("mrr", ())
            cells = [f"{minutes:.1f}" if minutes else "", *(spread(row[measure]) for measure in _MEASURES)]
            text = {"base": "the model", "question": "the question", _LAST_OF_TWO: "SFT, then DPO"}.get(policy, f"`{policy}`")
            yield [where, text, *cells, tested_difference(above) if len(above) == 5 else ""]
            where = ""


def _find_minutes(rows: dict[str, Any], policy: str) -> float:
    """The time that trainings took; up to a step, where a policy is that of one."""
    name, _, step = policy.partition(" step")
    curves = rows[name].get("curves", []) if name in rows else []
    if curves:
        last = int(step) if step else float("inf")
        return fmean(sum(point.get("step_seconds", 0) for point in curve if point["step"] <= last) for curve in curves) / 60
    return fmean(one["train"] for one in rows[policy].get("seconds", [{"train": 0}])) / 60


def _write_recorded(model: str, name: str) -> Iterator[list[str]]:
    """Rounds of `grpo` from recorded rollouts, each after those before it."""
    results = read_results(name)
    where, seconds = f"manuals, {results['test']['num_questions']:,} questions, {model}", results["stages_s"]
    for policy, row in results["test"]["first_search"].items():
        if policy not in ("question", "base") and not policy.startswith("round"):
            continue
        last = int(policy.removeprefix("round")) if policy.startswith("round") else 0
        spent = sum(value for stage, value in seconds.items() if stage.startswith("rounds/") and int(stage.split("/")[1]) <= last)
        text = {"base": "the model", "question": "the question"}.get(policy, f"`grpo`, recorded, {policy}")
        yield [where, text, f"{spent / 60:.1f}" if spent else "", *(short(row[measure]) for measure in _MEASURES), ""]
        where = ""
