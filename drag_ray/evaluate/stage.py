"""The evaluate stage: every policy rolls out the same held-out questions, greedily, on the same index; then they are compared."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ray

from drag_ray import artifacts, provenance, schemas
from drag_ray.agent.baselines import BASELINES, build_generate
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.rollout import Policy, Rollouts, RolloutTask
from drag_ray.artifacts import StageFolder
from drag_ray.collect import journal
from drag_ray.collect.plan import build_plan
from drag_ray.collect.stage import build_options, collect, read_questions
from drag_ray.evaluate.comparison import Comparison, compare
from drag_ray.evaluate.console import format_console
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.examples import choose_examples
from drag_ray.evaluate.policies import BASE_NAME, check_baselines, choose_models
from drag_ray.evaluate.report import write_report
from drag_ray.evaluate.results import QuestionResult, compute_results
from drag_ray.search.index import read_record
from drag_ray.search.searcher import Searcher
from drag_ray.types import Question, Trajectory

REPORT_NAME = "report.html"
_PRESET = "greedy"


def run(config: Any, folder: StageFolder) -> dict[str, Any]:
    """Roll out the test questions with every policy and write `comparison.json`, `results.jsonl` and `report.html`.

    Returns:
        Counts: questions, policies, unfinished rollouts, and the first hits of each policy.

    Raises:
        DataError: there is no test question.
        ConfigError: a policy cannot be built.
        ArtifactError: an adapter is missing.
    """
    check_baselines(config.evaluate.baselines)
    models = choose_models(config, has_gpu=ray.cluster_resources().get("GPU", 0) >= 1)
    questions = read_questions(config.stage_dir("index"), "test", config.evaluate.limit, config.seed)
    tasks = build_plan(questions, (_PRESET,), 1, config.seed)
    trajectories: dict[str, list[Trajectory]] = {}
    num_unfinished = 0
    for name in config.evaluate.baselines:
        trajectories[name] = _run_baseline(name, tasks, config)
    for model in models:
        run_dir = folder.path / "rollouts" / model.name
        totals = collect(tasks, build_options(config, model.engine, run_dir), config.collect, f"evaluating {model.name}")
        num_unfinished += totals["unfinished"]
        rows = journal.read_trajectories(run_dir).to_pylist()
        trajectories[model.name] = [schemas.to_trajectory(row) for row in rows]
    results = compute_results(trajectories, questions)
    comparison = compare(results, BASE_NAME, models[-1].name, num_resamples=config.evaluate.num_resamples, seed=config.seed)
    context = _build_context(config, questions)
    print(format_console(comparison, context))
    _write(folder.path, trajectories, results, comparison, context, config.evaluate.num_examples)
    print(f"report: {(folder.path / REPORT_NAME).resolve()}")
    first_hits = {f"first_hits_{name}": sum(result.first_search_rank == 1 for result in rows) for name, rows in results.items()}
    return {"questions": len(questions), "policies": len(trajectories), "unfinished": num_unfinished, **first_hits}


def _run_baseline(name: str, tasks: Sequence[RolloutTask], config: Any) -> list[Trajectory]:
    """A policy without a model needs no engine and no actors: one search a question."""
    agent = config.agent.model_copy(update={"max_iterations": 1})
    searcher = Searcher(config.stage_dir("index") / "search_index")
    environment = SearchEnvironment(searcher, agent.top_k, agent.depth)
    generate = build_generate(BASELINES[name], agent)
    rollouts = Rollouts(agent, Policy(name), generate, environment, searcher.record.fingerprint)

    async def run_all() -> list[Trajectory]:
        return [await rollouts.run(task) for task in tasks]

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


def _build_context(config: Any, questions: Sequence[Question]) -> ReportContext:
    record = read_record(config.stage_dir("index") / "search_index")
    manifests = {
        stage: manifest
        for stage in ("index", "collect", "process", "format", "finetune")
        if (manifest := artifacts.read_manifest(config.stage_dir(stage)))
    }
    return ReportContext(
        search_operator=record.operator,
        analyzer=record.analyzer,
        sampling=_PRESET,
        seeds=(config.seed,),
        summary=f"{len(questions)} held-out questions on {record.num_pages} pages, asked by {config.engine.model}.",
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=provenance.read_commit(),
        training_curve=_read_curve(config.stage_dir("finetune") / "curve.jsonl"),
        stage_times={stage: manifest.duration_s for stage, manifest in manifests.items()},
        versions=provenance.read_versions(),
        fingerprints={stage: manifest.fingerprint for stage, manifest in manifests.items()}
        | {"search index": record.fingerprint},
        config=config.model_dump(mode="json"),
    )


def _read_curve(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
