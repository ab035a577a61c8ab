"""The rollouts of an evaluation: every policy is asked the same questions on the same index.

Baselines that need no engine are prepared and searched beside those that do, so that no GPU waits for them.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.baselines.baseline import Baseline, Sources
from drag_ray.baselines.registry import BASELINES
from drag_ray.baselines.rollouts import BaselineOptions, build_rollouts
from drag_ray.cluster.tasks import run_tasks
from drag_ray.engine.models.adapter import check_adapter
from drag_ray.evaluate.config import EvaluateSections
from drag_ray.evaluate.policies.policy import BASE_NAME, PRESET, ModelPolicy
from drag_ray.evaluate.policies.reuse import ROLLOUTS_DIR_NAME, fingerprint_policy, list_earlier, prepare_rollouts
from drag_ray.finetune.training_folder import find_reranker
from drag_ray.rollout import journal
from drag_ray.rollout.options import WorkerOptions, build_options, with_degradation
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import run_plan
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.types import Question, Trajectory

_logger = logging.getLogger(__name__)

_SUMMED = ("unfinished", "set_aside", "cost")
_TASKS_AT_ONCE = 1024
"""rollouts without an engine that a process makes"""
_QUICK_S = 5.0
"""seconds that a baseline has to fail in before an engine is given work"""


@dataclass(frozen=True)
class RolledOut:
    """The rollouts of an evaluation.

    Attributes:
        trajectories: of each policy, the baselines first.
        baselines: by name, prepared.
        summed: numbers of rollouts that are unfinished or set aside, and what endpoints cost that were asked.
    """

    trajectories: dict[str, list[Trajectory]]
    baselines: Mapping[str, Baseline]
    summed: dict[str, float]


def roll_out(
    models: Sequence[ModelPolicy], questions: Sequence[Question], sections: EvaluateSections, inputs: Inputs, folder: StageFolder
) -> RolledOut:
    """Ask every policy the questions.

    Raises:
        DataError: what a baseline reads cannot be read.
        ConfigError: the index lacks what a baseline searches.
    """
    tasks, names = build_plan(questions, (PRESET,), 1, sections.seed), sections.evaluate.baselines
    reranker, dense_weight = find_reranker(inputs.find("finetune")), sections.agent.dense_weight
    folders = inputs.find("embed"), dense_weight, inputs.find("questions")
    sources = Sources(sections.evaluate, inputs["index"], sections.seed, reranker, *folders)
    with ThreadPoolExecutor(1) as beside:
        preparing = beside.submit(_prepare, [name for name in names if not BASELINES[name].uses_engine], sources)
        searching = beside.submit(lambda: _run_without_engine(preparing.result(), tasks, sections.agent, sources.index_dir))
        baselines = _prepare([name for name in names if BASELINES[name].uses_engine], sources)
        wait([preparing], timeout=_QUICK_S)
        if preparing.done():
            preparing.result()
        with_engine, summed = _run_with_engines(models, baselines, tasks, sections, inputs, folder)
        without = searching.result()
    trajectories = {name: (without | with_engine).get(name, []) for name in names} | with_engine
    prepared = baselines | preparing.result()
    return RolledOut(trajectories, {name: prepared[name] for name in names}, summed)


def search_questions(
    name: str, baseline: Baseline, questions: Sequence[Question], sections: EvaluateSections, index_dir: Path
) -> list[Trajectory]:
    """The rollouts of one baseline that needs no engine."""
    tasks = build_plan(questions, (PRESET,), 1, sections.seed)
    return _run_without_engine({name: baseline}, tasks, sections.agent, index_dir)[name]


def _prepare(names: Sequence[str], sources: Sources) -> dict[str, Baseline]:
    return {name: BASELINES[name].prepare(sources) for name in names}


def _run_with_engines(
    models: Sequence[ModelPolicy],
    baselines: Mapping[str, Baseline],
    tasks: Sequence[RolloutTask],
    sections: EvaluateSections,
    inputs: Inputs,
    folder: StageFolder,
) -> tuple[dict[str, list[Trajectory]], dict[str, float]]:
    """The trajectories of the models and of the baselines that they write for, one engine after the other, and what is summed."""
    trajectories: dict[str, list[Trajectory]] = {}
    summed: dict[str, float] = {}
    for number, sharing in enumerate(group_by_engine(models), start=1):
        rollouts_dir = folder.path / ROLLOUTS_DIR_NAME / f"engine{number}"
        plans = {name: plan for model in sharing for name, plan in plan_policy(model, baselines, tasks).items()}
        fingerprints = {model.name: fingerprint_policy(model, folder.identity) for model in sharing}
        for name, source in prepare_rollouts(rollouts_dir, fingerprints, list_earlier(folder.path)).items():
            _logger.info(f"{name}: has not changed; its rollouts are taken from {source}")
        finished, counts = _run_with_engine(sharing, plans, baselines, sections, inputs, rollouts_dir)
        trajectories |= finished
        summed |= {name: summed.get(name, 0) + counts[name] for name in _SUMMED if name in counts}
    return trajectories, summed


def group_by_engine(models: Sequence[ModelPolicy]) -> list[list[ModelPolicy]]:
    """The policies that one engine writes for: they differ in nothing but the adapter."""
    groups: dict[str, list[ModelPolicy]] = {}
    for model in models:
        shared = model.engine.model_copy(update={"adapter": ""})
        groups.setdefault(shared.model_dump_json(), []).append(model)
    return list(groups.values())


def plan_policy(
    model: ModelPolicy, baselines: Mapping[str, Baseline], tasks: Sequence[RolloutTask]
) -> dict[str, Sequence[RolloutTask]]:
    """The rollouts of a policy and, with those of the base model, of the baselines that ask it."""
    own = [replace(task, policy=model.name) for task in tasks]
    asking = baselines if model.name == BASE_NAME else ()
    return {model.name: own, **{name: [replace(task, baseline=name) for task in own] for name in asking}}


def _run_without_engine(
    baselines: Mapping[str, Baseline], tasks: Sequence[RolloutTask], agent: AgentConfig, index_dir: Path
) -> dict[str, list[Trajectory]]:
    """One search a question, on all CPUs that see the index: without an engine there is no need of actors."""
    planned = [replace(task, baseline=name) for name in baselines for task in tasks]
    parts = [planned[start : start + _TASKS_AT_ONCE] for start in range(0, len(planned), _TASKS_AT_ONCE)]
    calls = [
        (part, BaselineOptions(agent, {task.baseline: baselines[task.baseline] for task in part}), index_dir / "search_index")
        for part in parts
    ]
    rollouts = [rollout for of_part in run_tasks(_search_part, calls, index_dir) for rollout in of_part]
    return {name: rollouts[place * len(tasks) : (place + 1) * len(tasks)] for place, name in enumerate(baselines)}


def _search_part(tasks: Sequence[RolloutTask], options: BaselineOptions, search_index: Path) -> list[Trajectory]:
    """The rollouts of tasks that stand in order of their baselines."""

    async def run(name: str) -> list[Trajectory]:
        own = [task for task in tasks if task.baseline == name]
        questions = [task.question.question for task in own]
        rollouts = build_rollouts(name, options, Searcher(search_index), questions=questions)
        return [await rollouts.run(task) for task in own]

    return [rollout for name in options.baselines for rollout in asyncio.run(run(name))]


def _run_with_engine(
    models: Sequence[ModelPolicy],
    plans: Mapping[str, Sequence[RolloutTask]],
    baselines: Mapping[str, Baseline],
    sections: EvaluateSections,
    inputs: Inputs,
    rollouts_dir: Path,
) -> tuple[dict[str, list[Trajectory]], dict[str, Any]]:
    """The trajectories of each plan on the engine of these models, and the runner's counts."""
    options = replace(_build_options(models, sections, inputs, rollouts_dir), baselines=baselines, stored=inputs.list_stored())
    plan = [task for tasks in plans.values() for task in tasks]
    counts = run_plan(plan, options, sections.rollout, f"evaluating {', '.join(options.policies)}")
    rows = journal.read_trajectories(options.run_dir).to_pylist()
    by_id = {row["id"]: schemas.to_trajectory(row) for row in rows}
    return {name: [by_id[task.id] for task in tasks if task.id in by_id] for name, tasks in plans.items()}, counts


def _build_options(
    models: Sequence[ModelPolicy], sections: EvaluateSections, inputs: Inputs, rollouts_dir: Path
) -> WorkerOptions:
    """The options of the workers that write as these models, on one engine."""
    for model in models:
        check_adapter(model.engine)
    policies = {model.name: Policy(model.engine.model, model.engine.adapter) for model in models}
    places = inputs["index"], rollouts_dir, inputs.find("embed"), inputs.find("questions")
    options = build_options(sections.agent, models[0].engine, sections.rollout, *places)
    return replace(with_degradation(options, sections.evaluate.degradation, "evaluate.degradation"), policies=policies)
