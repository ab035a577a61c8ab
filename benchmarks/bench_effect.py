"""What policies find beside the question itself, row by row: `results/effect.json`.

A row is a policy on the held-out questions of a set. This script makes those of policies without a model, on finished index
stages (`python jobs/index.py --run-dir runs/NAME ...`), and takes those of models from finished evaluations. A row of the
same set, split, model, policy and seed replaces the one that is there. `vs_question` holds for each measure the difference, the
ends of its interval, its p-value and that p-value corrected (Holm) over all rows and measures of the file. `vs_best_untrained`
holds the same of a trained policy and the untrained one with the highest MRR, whose name is beside it.

python benchmarks/bench_effect.py --index medquad=runs/medquad/index [--index NAME=FOLDER ...]
python benchmarks/bench_effect.py --evaluation medquad=runs/medquad/evaluate [--evaluation NAME=FOLDER ...] [--split dev]
"""

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from record import RESULTS_DIR, write_result

from drag_ray.agent.config import AgentConfig
from drag_ray.artifacts import require_manifest
from drag_ray.baselines.baseline import Sources
from drag_ray.baselines.dense import Dense
from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.registry import BASELINES
from drag_ray.baselines.rollouts import BaselineOptions, build_rollouts
from drag_ray.corpus.question_table import draw_split
from drag_ray.evaluate.comparison import compare
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.evaluate.policies import BASE_NAME
from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.significance import holm
from drag_ray.prompt.outcome import PROMPTED_NAME
from drag_ray.rollout.plan import build_plan
from drag_ray.search.searcher import Searcher
from drag_ray.types import Trajectory

NAME = "effect"
SEED = 0
MEASURES = {"hit1": "hit_at_1", "hit3": "hit_at_3", "hit10": "hit_at_10", "mrr": "mrr"}
COMPARED = ("hit1", "hit3", "mrr")
WITHOUT_MODEL = [name for name, kind in BASELINES.items() if not kind.uses_engine() and not issubclass(kind, Dense)]
UNTRAINED = {*BASELINES, BASE_NAME, PROMPTED_NAME}
KEY = ("set", "split", "model", "policy", "seed")

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", nargs="*", default=[], metavar="NAME=FOLDER", help="sets for policies without a model")
    parser.add_argument("--evaluation", nargs="*", default=[], metavar="NAME=FOLDER", help="finished evaluate stages")
    parser.add_argument("--split", default="test", help="what the held-out questions are called in the set")
    options = parser.parse_args()
    path = RESULTS_DIR / f"{NAME}.json"
    rows = json.loads(path.read_text())["results"]["rows"] if path.exists() else []
    for entry in options.index:
        name, _, folder = entry.partition("=")
        rows = replace_rows(rows, measure_without_model(name, options.split, Path(folder)))
    for entry in options.evaluation:
        name, _, folder = entry.partition("=")
        rows = replace_rows(rows, read_evaluation(name, options.split, Path(folder)))
    correct(rows)
    for row in rows:
        print(row["set"], row["policy"], *(row[name] for name in MEASURES), row["vs_question"])
    write_result(NAME, {"rows": rows})


def measure_without_model(name: str, split: str, index_dir: Path) -> list[Row]:
    """The rows of all policies that need no model, each asked all test questions of an index stage."""
    require_manifest(index_dir, "python jobs/index.py")
    agent = AgentConfig(max_iterations=1)
    searcher, questions = Searcher(index_dir / "search_index"), draw_split(index_dir, "test", 0, SEED)
    sources = Sources(EvaluateConfig(), index_dir, SEED)
    baselines = {policy: BASELINES[policy].prepare(sources) for policy in WITHOUT_MODEL}
    plan = build_plan(questions, ("greedy",), 1, SEED)

    async def roll_out(policy: str) -> list[Trajectory]:
        rollouts = build_rollouts(policy, BaselineOptions(agent, baselines), searcher)
        return [await rollouts.run(task) for task in plan]

    results = compute_results({policy: asyncio.run(roll_out(policy)) for policy in WITHOUT_MODEL}, questions)
    comparison = compare(results, RawQuestion.name, seed=SEED)
    return [to_row(name, split, "", policy, comparison.to_dict()) for policy in comparison.policies]


def read_evaluation(name: str, split: str, folder: Path) -> list[Row]:
    """The rows of the policies with a model in a finished evaluation that compares with the question."""
    manifest = require_manifest(folder, "python jobs/evaluate.py")
    comparison = json.loads((folder / "comparison.json").read_text())
    model = Path(manifest.origin["config"]["engine"]["model"]).name
    return [to_row(name, split, model, policy, comparison) for policy in comparison["policies"] if policy not in WITHOUT_MODEL]


def to_row(name: str, split: str, model: str, policy: str, comparison: Mapping[str, Any]) -> Row:
    """What a comparison says of one policy, its p-values not yet corrected."""
    measured = {row["name"]: row for row in comparison["rows"]}
    values = {key: _read(measured, measure, policy) for key, measure in MEASURES.items()}
    return {
        **{"set": name, "split": split, "model": model, "policy": policy, "seed": comparison["seed"]},
        "n": comparison["num_questions"],
        **values,
        "question_weight": comparison.get("context", {}).get("question_weights", {}).get(policy, {}).get("weight"),
        "vs_question": compare_with(measured, policy, RawQuestion.name),
        **compare_with_best_untrained(measured, policy, comparison),
        "pages_shown": _read(measured, "pages_shown", policy),
        "tokens_per_question": _read(measured, "num_completion_tokens", policy) or 0.0,
    }


def compare_with_best_untrained(
    measured: Mapping[str, Any], policy: str, comparison: Mapping[str, Any]
) -> dict[str, str | dict[str, list[float]] | None]:
    """How a trained policy compares with the untrained one of the highest MRR, and which that is."""
    untrained = [name for name in comparison["policies"] if name in UNTRAINED]
    if policy in UNTRAINED or not untrained:
        return {"best_untrained": None, "vs_best_untrained": None}
    best = max(untrained, key=lambda name: measured[MEASURES["mrr"]]["metrics"][name]["value"])
    return {"best_untrained": best, "vs_best_untrained": compare_with(measured, policy, best)}


def compare_with(measured: Mapping[str, Any], policy: str, reference: str) -> dict[str, list[float]] | None:
    """[difference, low, high, p] of each compared measure; None of a policy with itself, or where it was not compared."""
    pairs = {}
    for key in COMPARED:
        for found in measured[MEASURES[key]]["differences"]:
            ends = (found["policy"], found["reference"])
            if ends in ((policy, reference), (reference, policy)):
                sign = 1 if ends == (policy, reference) else -1
                low, high = sorted((sign * found["low"], sign * found["high"]))
                pairs[key] = [round(sign * found["value"], 4), round(low, 4), round(high, 4), found["p_value"]]
    return pairs or None


def _read(measured: Mapping[str, Any], measure: str, policy: str) -> float | None:
    value = measured.get(measure, {}).get("metrics", {}).get(policy, {}).get("value")
    return None if value is None else round(value, 4)


def replace_rows(rows: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """The rows with those of the same key replaced, and the others added."""
    keys = {tuple(row[key] for key in KEY) for row in new}
    return [row for row in rows if tuple(row[key] for key in KEY) not in keys] + list(new)


def correct(rows: Sequence[Row]) -> None:
    """Put Holm's p-value beside the raw one of each difference: the family is every difference in the file."""
    compared = [row.get(key) or {} for row in rows for key in ("vs_question", "vs_best_untrained")]
    differences = [found for measures in compared for found in measures.values()]
    for found, adjusted in zip(differences, holm([found[3] for found in differences]), strict=True):
        found[4:] = [adjusted]


if __name__ == "__main__":
    main()
