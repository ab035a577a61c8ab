"""The processes of workers: those that Ray Data starts for a plan, and those that a stage keeps for one plan after the other.

A worker takes seconds to start, most of them for imports, and a step of reinforcement learning on a GPU not much longer.
"""

import asyncio
import os
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.exceptions import RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from drag_ray.cluster.metrics import RayRecorder, Recorder
from drag_ray.errors import DragRayError, EngineDiedError
from drag_ray.messages import show_messages
from drag_ray.rollout.counts import COUNTS, WORKER_COUNTS
from drag_ray.rollout.detached import resolve_worker_paths
from drag_ray.rollout.folder import log_to_file
from drag_ray.rollout.journal import Keep
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.pool import Pool
from drag_ray.rollout.worker import RolloutWorker

Worker = Callable[[Any], Awaitable[pa.Table]]
"""Makes a table of a chunk."""
BuildWorker = Callable[[WorkerOptions, Recorder, Keep], Worker]
"""Makes a worker in its own process: from the options, what is told of its load, and what calls functions where the run's folder
is seen."""
MapChunks = Callable[[Sequence[Any], "WorkerJob", Pool, int], Iterator[dict[str, Any]]]
"""Hands chunks to the workers of a pool, so many at once to each, and gives the rows that they make of them, as they come. The
chunks of a worker whose process ends are given to another one, or to it when it has been started again.

Raises:
    RayError: what a worker raised, which is its cause.
"""


@dataclass(frozen=True)
class WorkerJob:
    """The job of the workers of an attempt at a plan: how they are made, and the keeper of their records (`start_keeper`)."""

    build_worker: BuildWorker
    options: WorkerOptions
    attempt: str
    keeper: Any

    def begin(self, earlier: Worker | None = None) -> Worker:
        """The worker of this process: a new one, or the earlier one with these options. Raises DragRayError: what its parts
        cannot do without is missing."""
        options, keep = resolve_worker_paths(self.options, self.attempt, _keep_by(self.keeper))
        log_to_file(options.local_dir or options.run_dir)
        if isinstance(earlier, RolloutWorker):
            earlier.begin(options, keep)
            return earlier
        show_messages()
        return self.build_worker(options, RayRecorder(options.tags, COUNTS | WORKER_COUNTS), keep)


async def _run(worker: Worker, chunk: Any) -> pa.Table:
    try:
        return await worker(chunk)
    except EngineDiedError:
        os._exit(1)  # Ray starts another engine in another process, and gives its chunks to it


class MappedWorker:
    """A worker as Ray Data calls it."""

    def __init__(self, job: WorkerJob) -> None:
        self._refusal: DragRayError | None = None
        try:
            self._worker = job.begin()
        except DragRayError as error:  # of an actor that does not start Ray would hand on the text alone, in a long report
            self._refusal = error

    async def __call__(self, row: pa.Table) -> AsyncIterator[pa.Table]:
        if self._refusal:
            raise self._refusal
        yield await _run(self._worker, pickle.loads(row["chunk"][0].as_py()))


def map_by_ray_data(chunks: Sequence[Any], job: WorkerJob, pool: Pool, chunks_at_once: int) -> Iterator[dict[str, Any]]:
    """See `MapChunks`. Each chunk is itself a row, which workers map that start for it."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False  # `Progress` shows what matters
    context.memory_usage_poll_interval_s = None  # a thread for each chunk, for figures that nobody reads
    context.execution_options.preserve_order = False
    context.raise_original_map_exception = True  # `find_reason` looks for it
    # The pool grows when its engines hold all the chunks that they may.
    context.autoscaling_config.actor_pool_util_upscaling_threshold = 1.0
    # Made here: `from_arrow` looks at each table in a task of its own, for whose CPUs a cluster would grow.
    rows = ray.data.from_items([{"chunk": pickle.dumps(chunk)} for chunk in chunks], override_num_blocks=len(chunks))
    mapped = rows.map_batches(
        MappedWorker,
        fn_constructor_args=(job,),
        batch_format="pyarrow",
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(
            min_size=min(pool.num_workers, len(chunks)),
            max_size=min(pool.max_workers, len(chunks)),
            max_concurrent_calls_per_actor=chunks_at_once,
            max_tasks_in_flight_per_actor=chunks_at_once,
        ),
        num_cpus=pool.num_cpus,
        num_gpus=pool.num_gpus,
    )
    yield from mapped.iter_rows()


class KeptWorker:
    """The actor of a worker that is kept. Each call brings its job, since one that Ray has started again knows of none."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._attempt = ""
        self._changing = asyncio.Lock()

    async def _begin(self, job: WorkerJob) -> Worker:
        async with self._changing:
            if self._worker is None or self._attempt != job.attempt:
                self._worker = await asyncio.to_thread(job.begin, self._worker)
                self._attempt = job.attempt
            return self._worker

    async def prepare(self, job: WorkerJob) -> None:
        """Begin a job before there is a chunk of it."""
        await self._begin(job)

    async def run(self, job: WorkerJob, chunk: Any) -> pa.Table:
        """The rows of a chunk."""
        return await _run(await self._begin(job), chunk)


_MAX_CALLS = 10_000
"""at the same time; how many there are is for `KeptWorkers.map_chunks` to say"""


class KeptWorkers:
    """Workers that stay for the plans that are run within the context, whose options differ in folder and policies alone.

    There are as many as the pool has at its start: plans of some seconds have no use for engines that start meanwhile.
    """

    def __init__(self) -> None:
        self._actors: list[Any] = []

    def __enter__(self) -> "KeptWorkers":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(self._actors)

    def map_chunks(self, chunks: Sequence[Any], job: WorkerJob, pool: Pool, chunks_at_once: int) -> Iterator[dict[str, Any]]:
        """See `MapChunks`. Workers that are missing start; chunks go to those that have begun."""
        num_workers = min(pool.num_workers, len(chunks))
        self._actors += [_start_worker(pool) for _ in range(len(self._actors), num_workers)]
        shared = ray.put(job)
        under_way: dict[Any, Any] = {actor.prepare.remote(shared): actor for actor in self._actors[:num_workers]}
        waiting, num_left = iter(chunks), len(chunks)
        try:
            while num_left:
                [ready], _ = ray.wait(list(under_way))
                actor, table = under_way.pop(ready), ray.get(ready)
                places = chunks_at_once if table is None else 1
                under_way |= {actor.run.remote(shared, chunk): actor for chunk in islice(waiting, places)}
                if table is not None:
                    num_left -= 1
                    yield from table.to_pylist()
        except BaseException:  # whoever is still at this job must not be at it when the next one begins
            self._end(list(under_way.values()))
            raise

    def _end(self, actors: Sequence[Any]) -> None:
        self._actors = [actor for actor in self._actors if actor not in actors]
        for actor in set(actors):
            ray.kill(actor)


def _start_worker(pool: Pool) -> Any:
    actor: Any = ray.remote(KeptWorker)
    # As Ray Data's: one that has ended begins anew, and is given its chunks again.
    lasting = {"max_restarts": -1, "max_task_retries": -1}
    return actor.options(num_cpus=pool.num_cpus, num_gpus=pool.num_gpus, max_concurrency=_MAX_CALLS, **lasting).remote()


def start_keeper(options: WorkerOptions) -> Any:
    """The actor that keeps records for nodes that do not see the run's folder; None where these could not take part anyway."""
    if not options.stored or options.node_dir is None:
        return None
    # Where the driver is: whatever other node is lost, the run goes on. Ray's annotation has forgotten this strategy.
    here: Any = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    keeper: Any = ray.remote(num_cpus=0, scheduling_strategy=here)(_Keeper)
    return keeper.remote()


class _Keeper:
    """Keeps records on the driver's node."""

    def keep(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The return value of a function that is called there."""
        return function(*args)


def _keep_by(keeper: Any) -> Keep:
    def keep(function: Callable[..., Any], *args: Any) -> Any:
        try:
            return ray.get(keeper.keep.remote(function, args))
        except RayTaskError as error:
            raise error.cause from None

    return keep
