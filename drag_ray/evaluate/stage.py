"""The evaluate stage: every policy rolls out the same held-out questions on the same index; then they are compared.

All are greedy but those that a reward model is judged by, which draw.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drag_ray import artifacts, provenance, schemas
from drag_ray.agent.rollout import RolloutTask
from drag_ray.artifacts import Manifest
from drag_ray.baselines.passages import read_examples
from drag_ray.baselines.policies import BASELINES, WITH_MODEL, WITH_REWARD_MODEL, BaselineOptions, build_rollouts
from drag_ray.cluster import takes_gpus
from drag_ray.corpus.question_table import draw_split
from drag_ray.evaluate.comparison import Comparison, compare
from drag_ray.evaluate.config import EvaluateSections
from drag_ray.evaluate.console import format_console
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.examples import choose_examples
from drag_ray.evaluate.policies import BASE_NAME, ModelPolicy, choose_baselines, choose_models, find_reward_model
from drag_ray.evaluate.report import write_report
from drag_ray.evaluate.results import QuestionResult, compute_results
from drag_ray.evaluate.reuse import ROLLOUTS_DIR_NAME, fingerprint_policy, list_earlier, prepare_rollouts
from drag_ray.inputs import Inputs
from drag_ray.rollout import journal
from drag_ray.rollout.options import build_options
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import run_plan
from drag_ray.search.index import read_record
from drag_ray.search.searcher import Searcher
from drag_ray.stage_folder import StageFolder
from drag_ray.types import Question, Trajectory

REPORT_NAME = "report.html"
_PRESET = "greedy"


def run(sections: EvaluateSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Roll out the test questions with every policy and write `comparison.json`, `results.jsonl` and `report.html`.

    Returns:
        Counts: questions, policies, rollouts that are unfinished or set aside, and the first hits of each policy.

    Raises:
        DataError: there is no test question.
        ConfigError: a policy cannot be built.
        ArtifactError: an adapter is missing.
    """
    settings = sections.evaluate
    models = choose_models(sections, inputs.find("finetune"), has_gpu=takes_gpus(sections.engine.device))
    baselines = choose_baselines(sections, inputs.find("finetune"))
    questions = draw_split(inputs["index"], "test", settings.limit, sections.seed)
    tasks = build_plan(questions, (_PRESET,), 1, sections.seed)
    trajectories, left_out = _roll_out(models, baselines, tasks, sections, inputs, folder)
    results = compute_results(trajectories, questions)
    subject = _choose_subject(models, baselines)
    comparison = compare(results, BASE_NAME, subject, num_resamples=settings.num_resamples, seed=sections.seed)
    context = _build_context(sections, inputs, questions, baselines)
    print(format_console(comparison, context))
    _write(folder.path, trajectories, results, comparison, context, settings.num_examples)
    print(f"report: {(folder.path / REPORT_NAME).resolve()}")
    first_hits = {f"first_hits_{name}": sum(result.is_first_hit for result in rows) for name, rows in results.items()}
    return {"questions": len(questions), "policies": len(trajectories), **left_out, **first_hits}


def _choose_subject(models: Sequence[ModelPolicy], baselines: Sequence[str]) -> str:
    """The policy whose gain is in question: the last adapter, or what a reward model chose."""
    if len(models) > 1:
        return models[-1].name
    return "best_of" if "best_of" in baselines else ""


def _roll_out(
    models: Sequence[ModelPolicy],
    baselines: Sequence[str],
    tasks: Sequence[RolloutTask],
    sections: EvaluateSections,
    inputs: Inputs,
    folder: StageFolder,
) -> tuple[dict[str, list[Trajectory]], dict[str, int]]:
    """The trajectories of each policy, the baselines first, and the numbers of rollouts that are unfinished or set aside."""
    baseline_options = _build_baseline_options(sections, inputs)
    trajectories: dict[str, list[Trajectory]] = {name: [] for name in baselines}
    for name in trajectories:
        if name not in WITH_MODEL:
            trajectories[name] = _run_baseline(name, baseline_options, tasks, inputs["index"])
    left_out = {"unfinished": 0, "set_aside": 0}
    earlier = list_earlier(folder.path)
    for model in models:
        with_base = [name for name in trajectories if name in WITH_MODEL] if model.name == BASE_NAME else []
        plans = {model.name: tasks} | {name: _plan_baseline(name, tasks, sections) for name in with_base}
        rollouts_dir = folder.path / ROLLOUTS_DIR_NAME / model.name
        taken = prepare_rollouts(rollouts_dir, fingerprint_policy(model, folder.identity), earlier)
        if taken:
            print(f"{model.name}: has not changed; its rollouts are taken from {taken}", flush=True)
        options = build_options(sections.agent, model.engine, sections.rollout, inputs["index"], rollouts_dir)
        options = replace(options, baselines=baseline_options)
        plan = [task for tasks_of_policy in plans.values() for task in tasks_of_policy]
        counts = run_plan(plan, options, sections.rollout, f"evaluating {model.name}")
        left_out = {name: count + counts[name] for name, count in left_out.items()}
        rows = journal.read_trajectories(options.run_dir).to_pylist()
        finished = {row["id"]: schemas.to_trajectory(row) for row in rows}
        for name, tasks_of_policy in plans.items():
            trajectories[name] = [finished[task.id] for task in tasks_of_policy if task.id in finished]
    return trajectories, left_out


def _plan_baseline(name: str, tasks: Sequence[RolloutTask], sections: EvaluateSections) -> list[RolloutTask]:
    """The rollouts of a baseline that the base model's engine writes; those that a reward model is judged by are drawn."""
    preset = sections.evaluate.best_of.preset if name in WITH_REWARD_MODEL else _PRESET
    return [replace(task, baseline=name, preset=preset) for task in tasks]


def _build_baseline_options(sections: EvaluateSections, inputs: Inputs) -> BaselineOptions:
    settings = sections.evaluate
    num_examples = settings.passage.num_examples if "query2doc" in settings.baselines else 0
    examples = read_examples(inputs["index"], num_examples, settings.passage.example_chars, sections.seed)
    reward_model = find_reward_model(inputs.find("finetune"))
    return BaselineOptions(sections.agent, settings.rm3, settings.passage, examples, settings.best_of, reward_model)


def _run_baseline(name: str, options: BaselineOptions, tasks: Sequence[RolloutTask], index_dir: Path) -> list[Trajectory]:
    """A baseline without a model needs no engine and no actors: one search a question."""
    rollouts = build_rollouts(name, options, Searcher(index_dir / "search_index"))

    async def run_all() -> list[Trajectory]:
        return [await rollouts.run(replace(task, baseline=name)) for task in tasks]

    return asyncio.run(run_all())


def _write(
    stage_dir: Path,
    trajectories: dict[str, list[Trajectory]],
    results: dict[str, list[QuestionResult]],
    comparison: Comparison,
    context: ReportContext,
    num_examples: int,
) -> None:
    rows = [{"policy": name, **asdict(result)} for name, policy_results in results.items() for result in policy_results]
    artifacts.write_jsonl(stage_dir / "results.jsonl", rows)
    artifacts.write_json(stage_dir / "comparison.json", comparison.to_dict())
    examples = choose_examples(trajectories, results, comparison.baseline, comparison.subject, num_examples)
    write_report(stage_dir / REPORT_NAME, comparison, examples, context)


def _build_context(
    sections: EvaluateSections, inputs: Inputs, questions: Sequence[Question], baselines: Sequence[str]
) -> ReportContext:
    record = read_record(inputs["index"] / "search_index")
    manifests = inputs.read_lineage()
    finetune_dir = inputs.find("finetune")
    return ReportContext(
        search_operator=record.operator,
        analyzer=record.analyzer,
        sampling=_describe_sampling(sections, baselines),
        seeds=(sections.seed,),
        summary=f"{len(questions)} held-out questions on {record.num_pages} pages, asked by {sections.engine.model}. "
        + " ".join(f"{name}: {BASELINES[name]}." for name in baselines),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=provenance.read_commit(),
        training_curve=_read_curve(finetune_dir / "curve.jsonl") if finetune_dir else [],
        stage_times={stage: manifest.duration_s for stage, manifest in manifests.items()},
        versions=provenance.read_versions(),
        fingerprints={stage: manifest.fingerprint for stage, manifest in manifests.items()}
        | {"search index": record.fingerprint},
        config=_gather_options(manifests) | sections.dump(),
    )


def _gather_options(manifests: Mapping[str, Manifest]) -> dict[str, Any]:
    """The options that made what was evaluated, as far as the evaluation has no such section of its own."""
    return {name: section for manifest in manifests.values() for name, section in manifest.origin.get("config", {}).items()}


def _describe_sampling(sections: EvaluateSections, baselines: Sequence[str]) -> str:
    drawn = [name for name in baselines if name in WITH_REWARD_MODEL]
    return f"{_PRESET} ({' and '.join(drawn)}: {sections.evaluate.best_of.preset})" if drawn else _PRESET


def _read_curve(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
