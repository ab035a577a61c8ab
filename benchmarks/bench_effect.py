"""Results of policies beside the question itself, row by row: `results/effect.json`.

A row is a policy on the held-out questions of a set. This script makes those of policies without a model, on finished index
stages (`python jobs/index.py --run-dir runs/NAME ...`), and takes those of models from finished evaluations. A row of the
same set, split, run, model, policy and seed replaces the one that is there. With `--run` the rows of an evaluation stand by
themselves, those of policies without a model too, so that what is compared was measured at once.

`vs_question` holds for each measure the difference, the ends of its interval, its p-value and that p-value corrected (Holm) over
all rows and measures of the file. `vs_best_without_language_model` holds the same of a trained policy and that with the highest
MRR of those for whose searches no language model runs, whose name is beside it. A reranker counts as trained: that of these
evaluations is the one that the run has trained itself. Older rows have `vs_best_untrained` in its place, of all untrained ones.

python benchmarks/bench_effect.py --index medquad=runs/medquad/index [NAME=FOLDER ...]
python benchmarks/bench_effect.py --evaluation medquad=runs/medquad/evaluate [NAME=FOLDER ...] [--split dev] [--model NAME]
    [--run reranker]
"""

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from record import RESULTS_DIR, write_result

from drag_ray.agent.config import AgentConfig
from drag_ray.baselines.baseline import Baseline, Sources
from drag_ray.baselines.dense import Dense
from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.registry import BASELINES
from drag_ray.baselines.rerank import Rerank
from drag_ray.baselines.rollouts import BaselineOptions, build_rollouts
from drag_ray.corpus.questions import draw_split
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.evaluate.evaluation_folder import read_comparison, read_question_weights, read_results
from drag_ray.evaluate.measures import build_measures
from drag_ray.evaluate.policies.policy import BASE_NAME
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.report.context import read_context
from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.statistics.intervals import Resampling, compute_clusters, holm
from drag_ray.evaluate.statistics.rows import Row as Comparison
from drag_ray.evaluate.statistics.rows import build_rows as compare_pairs
from drag_ray.rollout.plan import build_plan
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs import provenance
from drag_ray.storage.artifacts import require_manifest
from drag_ray.types import Trajectory

NAME = "effect"
SEED = 0
MEASURES = {"hit1": "hit_at_1", "hit3": "hit_at_3", "hit10": "hit_at_10", "mrr": "mrr"}
COMPARED = tuple(MEASURES)
PAGES, TOKENS = "pages_shown", "num_completion_tokens"
CONFIDENCE = 0.95
NUM_RESAMPLES = 300_000
"""No p-value is below one in that many, and Holm's correction multiplies it by the number of differences in the file."""
OF_OTHER_MODELS = (Dense, Rerank)
"""Baselines of models that embed or rank, which come from evaluations."""
WITHOUT_MODEL = [name for name, kind in BASELINES.items() if not kind.uses_engine and not issubclass(kind, OF_OTHER_MODELS)]
MODEL_FREE = {*WITHOUT_MODEL, *(kind.name for kind in BASELINES.values() if issubclass(kind, Dense))}
"""Policies that ask no model for words; some ask one for vectors."""
UNTRAINED = {*BASELINES, BASE_NAME} - {Rerank.name}
REFERENCES = ("vs_question", "vs_best_without_language_model", "vs_best_untrained")
KEY = ("set", "split", "run", "model", "policy", "seed")

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", nargs="*", default=[], metavar="NAME=FOLDER", help="sets for policies without a model")
    parser.add_argument("--evaluation", nargs="*", default=[], metavar="NAME=FOLDER", help="finished evaluate stages")
    parser.add_argument("--split", default="test", help="what the held-out questions are called in the set")
    parser.add_argument("--model", default="", help="name of the evaluations' model, where it is not that of its folder")
    parser.add_argument("--run", default="", help="name of the run that the evaluations are of, where a set has several")
    options = parser.parse_args()
    path = RESULTS_DIR / f"{NAME}.json"
    rows = json.loads(path.read_text())["results"]["rows"] if path.exists() else []
    for entry in options.index:
        name, _, folder = entry.partition("=")
        rows = replace_rows(rows, measure_without_model(name, options.split, Path(folder)))
    for entry in options.evaluation:
        name, _, folder = entry.partition("=")
        rows = replace_rows(rows, read_evaluation(name, options.split, Path(folder), options.model, options.run))
    correct(rows)
    for row in rows:
        print(row["set"], row["policy"], *(row[name] for name in MEASURES), row["vs_question"])
    write_result(NAME, {"rows": rows}, measured_here=False)


def measure_without_model(name: str, split: str, index_dir: Path) -> list[Row]:
    """The rows of all policies that need no model, each asked all test questions of an index stage."""
    require_manifest(index_dir, "python jobs/index.py")
    sources = Sources(EvaluateConfig(), index_dir, SEED)
    results = ask({policy: BASELINES[policy].prepare(sources) for policy in WITHOUT_MODEL}, index_dir)
    about = {"set": name, "split": split, "run": "", "model": "", "seed": SEED, "machine": provenance.read_machine()}
    return build_rows(about, results, {}, list(results))


def ask(baselines: Mapping[str, Baseline], index_dir: Path) -> dict[str, list[QuestionResult]]:
    """Ask policies that need no model all test questions of an index stage."""
    agent = AgentConfig(max_iterations=1)
    searcher, questions = Searcher(index_dir / "search_index"), draw_split(index_dir, "test", 0, SEED)
    plan = build_plan(questions, ("greedy",), 1, SEED)

    async def roll_out(policy: str) -> list[Trajectory]:
        rollouts = build_rollouts(policy, BaselineOptions(agent, baselines), searcher)
        return [await rollouts.run(task) for task in plan]

    return compute_results({policy: asyncio.run(roll_out(policy)) for policy in baselines}, questions)


def read_evaluation(name: str, split: str, folder: Path, model: str = "", run: str = "") -> list[Row]:
    """The rows of the policies with a model in a finished evaluation that has asked the question too; of a run all."""
    manifest = require_manifest(folder, "python jobs/evaluate.py")
    model = model or Path(manifest.origin["config"]["engine"]["model"]).name
    results = read_results(folder)
    policies = [policy for policy in results if run or policy not in WITHOUT_MODEL]
    comparison = read_comparison(folder)
    about = {"set": name, "split": split, "run": run, "model": model, "seed": comparison["seed"]}
    about["machine"] = read_context(comparison["context"]).machine
    return build_rows(about, results, read_question_weights(folder), policies)


def build_rows(
    about: Mapping[str, Any],
    results: Mapping[str, Sequence[QuestionResult]],
    question_weights: Mapping[str, float],
    policies: Sequence[str],
) -> list[Row]:
    """The rows of some of the policies, their p-values not yet corrected."""
    aligned = {policy: sorted(rows, key=lambda row: row.question_id) for policy, rows in results.items()}
    measures = [measure for measure in build_measures(aligned) if measure.name in (*MEASURES.values(), PAGES, TOKENS)]
    best = find_best_without_language_model(aligned)
    pairs = [(policy, RawQuestion.name) for policy in policies if policy != RawQuestion.name]
    pairs += [(policy, best) for policy in policies if is_trained(policy) and best != RawQuestion.name]
    clusters = compute_clusters(aligned[RawQuestion.name])
    found = compare_pairs(aligned, pairs, measures, Resampling(clusters, CONFIDENCE, NUM_RESAMPLES, SEED))
    measured = {row.name: row for row in found}
    rows: list[Row] = []
    for policy in policies:
        rows.append(
            {
                **about,
                **({"model": ""} if MODEL_FREE.issuperset(policy.split("+")) else {}),
                "policy": policy,
                "n": len(clusters),
                **{key: take_value(measured[measure], policy) for key, measure in MEASURES.items()},
                "question_weight": question_weights.get(policy),
                "vs_question": take_differences(measured, policy, RawQuestion.name),
                "best_without_language_model": best if is_trained(policy) else None,
                "vs_best_without_language_model": take_differences(measured, policy, best) if is_trained(policy) else None,
                "pages_shown": take_value(measured[PAGES], policy),
                "tokens_per_question": take_value(measured[TOKENS], policy) or 0.0,
            }
        )
    return rows


def is_without_language_model(policy: str) -> bool:
    """True if no language model runs when a policy, or what stands beside it after a `+`, is asked a question."""
    without = (name for name, baseline in BASELINES.items() if not baseline.uses_engine and baseline is not Rerank)
    return set(policy.split("+")) <= set(without)


def is_trained(policy: str) -> bool:
    """True if its weights were trained, or those of a part of it: base+hybrid is as untrained as base, base+rerank is not."""
    return not UNTRAINED.issuperset(policy.split("+"))


def find_best_without_language_model(results: Mapping[str, Sequence[QuestionResult]]) -> str:
    """The policy of these with the highest mean reciprocal rank; the question is one."""
    without = {policy: rows for policy, rows in results.items() if is_without_language_model(policy)}
    return max(without, key=lambda policy: sum(row.reciprocal_rank for row in without[policy]))


def take_differences(measured: Mapping[str, Comparison], policy: str, reference: str) -> dict[str, list[float]] | None:
    """[difference, low, high, p] of each compared measure; None of a policy with itself."""
    if policy == reference:
        return None
    found = {key: measured[MEASURES[key]].difference(policy, reference) for key in COMPARED}
    # Each applies to every question, so none is without a value.
    ends = {key: (row.value or 0.0, row.low or 0.0, row.high or 0.0) for key, row in found.items()}
    return {key: [*(round(value, 4) for value in ends[key]), row.p_value] for key, row in found.items()}


def take_value(row: Comparison, policy: str) -> float | None:
    """The value of a measure, None where it has none for this policy."""
    value = row.metrics[policy].value
    return None if value is None else round(value, 4)


def replace_rows(rows: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """The rows with those of the same key replaced, and the others added."""
    keys = {tuple(row[key] for key in KEY) for row in new}
    return [row for row in rows if tuple(row[key] for key in KEY) not in keys] + list(new)


def correct(rows: Sequence[Row], keys: Sequence[str] = REFERENCES) -> None:
    """Put Holm's p-value beside the raw one of each difference: the family is every difference in the file."""
    compared = [row.get(key) or {} for row in rows for key in keys]
    differences = [found for measures in compared for found in measures.values()]
    for found, adjusted in zip(differences, holm([found[3] for found in differences]), strict=True):
        found[4:] = [adjusted]


if __name__ == "__main__":
    main()
