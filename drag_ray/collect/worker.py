"""One engine with its index and its journal, fed with chunks of rollouts. It knows nothing of the actor that holds it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.rollout import Policy, Rollouts, RolloutTask
from drag_ray.baselines.policies import BaselineOptions, build_rollouts
from drag_ray.collect.counts import COUNTS, count_chunk
from drag_ray.collect.journal import Journal, claim, read_finished_ids
from drag_ray.collect.plan import read_tasks
from drag_ray.collect.recorder import NoRecorder, Recorder
from drag_ray.corpus.page_images import PageImages
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import GenerateFn, ImageSource
from drag_ray.engine.vllm import VllmEngine
from drag_ray.search.config import SYNTAX_HELP
from drag_ray.search.searcher import Searcher
from drag_ray.types import Trajectory

SUMMARY_SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in COUNTS),
        ("errors", pa.list_(pa.string())),
    ]
)
"""What a chunk reports when it is through."""


@dataclass(frozen=True)
class WorkerOptions:
    """What a worker is made from; it crosses process borders.

    `baselines` is needed by rollouts of a baseline alone, `images_dir` by an agent that is shown page images.
    `build_engine` makes the engine in the worker's own process.
    """

    run_dir: Path
    index_dir: Path
    agent: AgentConfig
    engine: EngineConfig
    policy: Policy
    concurrent_rollouts: int
    flush_s: float
    baselines: BaselineOptions | None = None
    images_dir: Path | None = None
    build_engine: Callable[[EngineConfig, ImageSource | None], GenerateFn] = VllmEngine


class CollectWorker:
    """Runs chunks of rollouts, many at once.

    Rollouts take places, not turns: a place is free again when its rollout ends, whatever step the others are at,
    and the next rollout of any waiting chunk takes it.

    Args:
        options: what to run with.
        recorder: is told of the load and of what each chunk came to.
    """

    def __init__(self, options: WorkerOptions, recorder: Recorder | None = None) -> None:
        generate = options.build_engine(options.engine, _build_image_source(options))
        self._options = options
        self._generate = generate
        self._searcher = Searcher(options.index_dir)
        environment = SearchEnvironment(self._searcher, options.agent.top_k, options.agent.depth)
        record = self._searcher.record
        rollouts = Rollouts(options.agent, options.policy, generate, environment, record.fingerprint, SYNTAX_HELP[record.syntax])
        self._rollouts = {"": rollouts}
        self._journal = Journal(options.run_dir, options.flush_s)
        self._places = asyncio.Semaphore(options.concurrent_rollouts)
        self._recorder = recorder or NoRecorder()
        self._num_running = self._num_placed = 0

    async def __call__(self, chunk: pa.Table) -> AsyncIterator[pa.Table]:
        tasks = read_tasks(chunk)
        if not claim(self._options.run_dir, chunk["chunk"][0].as_py()):
            finished_ids = read_finished_ids(self._options.run_dir)
            tasks = [task for task in tasks if task.id not in finished_ids]
        self._num_running += len(tasks)
        trajectories = await asyncio.gather(*(self._run(task) for task in tasks))
        yield self._summarise(trajectories)

    def _choose_rollouts(self, baseline: str) -> Rollouts:
        """The agent's rollouts, or those of a baseline that asks the same engine and index."""
        if baseline not in self._rollouts:
            options = self._options
            assert options.baselines, "rollouts of a baseline need its options"
            self._rollouts[baseline] = build_rollouts(
                baseline, options.baselines, self._searcher, self._generate, options.policy.model
            )
        return self._rollouts[baseline]

    async def _run(self, task: RolloutTask) -> Trajectory:
        async with self._places:
            self._note_load(placed=1)
            trajectory = await self._choose_rollouts(task.baseline).run(task)
            self._note_load(placed=-1)
        self._journal.add(trajectory)
        self._num_running -= 1
        self._note_load()
        if self._num_running == 0:
            self._journal.flush()  # perhaps nothing comes after this, and nobody tells an actor that it ends
        return trajectory

    def _note_load(self, placed: int = 0) -> None:
        self._num_placed += placed
        self._recorder.set_load(self._num_placed, self._num_running - self._num_placed)

    def _summarise(self, trajectories: Sequence[Trajectory]) -> pa.Table:
        counts = count_chunk(trajectories)
        self._recorder.add_chunk(counts, [trajectory.duration_s for trajectory in trajectories])
        errors = [trajectory.error for trajectory in trajectories if trajectory.error]
        return pa.Table.from_pylist([{**counts, "errors": errors}], schema=SUMMARY_SCHEMA)


def _build_image_source(options: WorkerOptions) -> ImageSource | None:
    if options.images_dir is None:
        return None
    searches = options.agent.image_searches or options.agent.max_iterations - 1
    return ImageSource(PageImages(options.images_dir).open, per_prompt=max(1, searches * options.agent.top_k))
