"""Runs a plan of rollouts: Ray Data streams its questions through engine actors, until every rollout is on disk."""

import gc
import logging
import os
import pickle
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from drag_ray.agent.task import RolloutTask
from drag_ray.cluster.metrics import RayRecorder, Recorder, name_tags
from drag_ray.cluster.nodes import NodeResources, list_nodes, takes_gpus
from drag_ray.engine.endpoints.spending import SPENDING_NAME, Spending
from drag_ray.engine.vllm import VllmEngine
from drag_ray.errors import DragRayError, EngineDiedError, TooManyFailuresError
from drag_ray.messages import show_messages
from drag_ray.rollout import journal
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.counts import COUNTS, WORKER_COUNTS, count_files
from drag_ray.rollout.detached import resolve_worker_paths
from drag_ray.rollout.engine_pool import borrow_engines, say_start
from drag_ray.rollout.failures import (
    check_failure_rate,
    count_errors,
    describe_errors,
    find_exhausted,
    read_failures,
    write_problems,
)
from drag_ray.rollout.folder import (
    ATTEMPT_NAME,
    CORRUPT_DIR_NAME,
    LOGS_DIR_NAME,
    PROBLEMS_NAME,
    TRAJECTORIES_DIR_NAME,
    find_last_error,
    list_changed_logs,
    log_to_file,
    read_log_changes,
)
from drag_ray.rollout.journal import Keep, drop_rollouts_without_images
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import (
    Ended,
    Successes,
    choose_next,
    choose_pending,
    count_chunks_at_once,
    count_plan,
    cut_chunks,
    group_by_question,
)
from drag_ray.rollout.pool import Pool, share_cpus, share_gpu, size_pool
from drag_ray.rollout.progress import Progress
from drag_ray.rollout.tool_hosts import host_tools
from drag_ray.rollout.worker import RolloutWorker
from drag_ray.storage import artifacts

_logger = logging.getLogger(__name__)

_MAX_PASSES = 3
"""Passes over what has not finished: a rollout is lost to a pass when its engine dies between its end and its write."""
BuildWorker = Callable[[WorkerOptions, Recorder, Keep], Callable[[Any], Awaitable[pa.Table]]]
"""Makes a worker in its own process: from the options, what is told of its load, and what calls functions where the run's folder
is seen. It makes a table of a chunk."""
_RAY_ADVICE = "\nFailed to apply UDF transform"
"""How the lines begin that Ray Data adds to the message of an error, about retrying what has no use in it."""


def run_plan(plan: Sequence[RolloutTask], options: WorkerOptions, settings: RolloutConfig, label: str) -> dict[str, Any]:
    """Run every rollout of the plan that is not yet on disk in `options.run_dir`.

    Returns:
        Counts over the whole plan: those of `count_plan` and of `count_files`, and what an endpoint costs whose prices are known.

    Raises:
        BudgetError: what an endpoint's replies may cost is spent.
        TooManyFailuresError: more rollouts failed than `max_failure_rate` allows, of the plan at its end or of this attempt
            while it goes on; their tries are not held against them.
        DragRayError: what a worker met that is no matter of one rollout, for example a full disk.
    """
    run_dir = options.run_dir
    journal.begin_attempt(run_dir)
    num_corrupt = len(journal.list_files(run_dir, CORRUPT_DIR_NAME))
    if num_corrupt:
        _logger.warning(f"{label}: {num_corrupt} damaged files set aside in {run_dir / CORRUPT_DIR_NAME}")
    num_lost = drop_rollouts_without_images(run_dir, options.image_dirs, shows_degraded=options.degradation.share > 0)
    if num_lost:
        _logger.warning(f"{label}: {num_lost} rollouts run again: images that they have shown are missing or damaged")
    ended = _read_ended(options)
    pending = choose_pending(plan, ended, options.enough_successes)
    counts = count_plan(plan, ended, pending)
    if ended:
        _logger.info(f"{label}: {counts['finished']} of {len(plan)} rollouts are finished already, {counts['unfinished']} to go")
    progress = Progress(counts["unfinished"], settings.max_failure_rate, label)
    try:
        ended, pending = _run_passes(pending, ended, options, settings, progress)
        journal.drop_repeated(run_dir)
        counts, errors = count_plan(plan, ended, pending), count_errors(read_failures(run_dir), ended)
        num_ended = sum(counts[name] for name in ("finished", "hinted", "set_aside"))
        check_failure_rate(counts["set_aside"], num_ended, settings.max_failure_rate, errors)
    except TooManyFailuresError:
        journal.reset_failures(run_dir)
        raise
    finally:
        progress.close()
        write_problems(run_dir, options.max_tries)
    if counts["set_aside"] or counts["unfinished"]:
        _logger.warning(
            f"{label}: {counts['set_aside']} rollouts set aside after {options.max_tries} tries, {counts['unfinished']} not "
            f"finished; see {run_dir / PROBLEMS_NAME}. Commonest errors:\n{describe_errors(errors)}"
        )
    return counts | count_files(journal.list_files(run_dir, TRAJECTORIES_DIR_NAME)) | count_cost(options)


def count_cost(options: WorkerOptions) -> dict[str, float]:
    """The cost of an endpoint's replies, those of rollouts that failed among them; nothing where that is not known."""
    terms = options.engine.endpoint
    if options.engine.backend != "openai" or not terms.has_prices:
        return {}
    return {"cost": Spending(options.run_dir / SPENDING_NAME, terms).compute_cost()}


def prepare_engines(options: WorkerOptions, settings: RolloutConfig) -> tuple[WorkerOptions, Pool]:
    """The options of each worker, and the pool of them; engines that are kept start at once (see `engine_pool`).

    Raises:
        ConfigError: see `size_pool`.
    """
    nodes = list_nodes()
    pool = _size_pool(options, settings, nodes)
    engine = share_cpus(share_gpu(options.engine, settings.engines_per_gpu), pool, nodes)
    options = replace(options, engine=engine)
    return borrow_engines(options, pool, settings.workers_per_engine)


def _size_pool(options: WorkerOptions, settings: RolloutConfig, nodes: Sequence[NodeResources]) -> Pool:
    return size_pool(settings, options.engine, use_gpu=takes_gpus(options.engine.device), nodes=nodes)


def _say_room(options: WorkerOptions, settings: RolloutConfig) -> None:
    """Say of a cluster that is smaller than what is asked of it that it is used as it is, or waited for."""
    nodes = list_nodes()
    pool = _size_pool(options, settings, nodes)
    room = pool.count_room(nodes)
    if room < pool.num_engines:
        _logger.warning(
            f"engines: {pool.num_engines} are asked for, and the cluster has room for {room} now. Those begin, the others when "
            "nodes come. If none will, lower rollout.num_engines or engine.tensor_parallel_size."
        )


def _run_passes(
    pending: list[RolloutTask], ended: Ended, options: WorkerOptions, settings: RolloutConfig, progress: Progress
) -> tuple[Ended, list[RolloutTask]]:
    """Hand out what is pending, and again what is left of it then; returns what has ended and what is still pending."""
    for _ in range(_MAX_PASSES):
        if not pending:
            break
        progress.begin_pass(sum(task.id not in ended for task in pending))
        for summary in _stream(pending, ended, options, settings):
            progress.add(summary)
        ended = _read_ended(options)
        pending = choose_pending(pending, ended, options.enough_successes)
        journal.forget_begun(options.run_dir)
    return ended, pending


def _read_ended(options: WorkerOptions) -> dict[str, Successes]:
    """The outcomes of the rollouts that need not be run: they have finished, or failed too often."""
    exhausted = find_exhausted(read_failures(options.run_dir), options.max_tries)
    return dict.fromkeys(exhausted) | journal.read_successes(options.run_dir)


def _stream(
    tasks: Sequence[RolloutTask], ended: Ended, options: WorkerOptions, settings: RolloutConfig
) -> Iterator[dict[str, Any]]:
    """Chunk summaries as they come."""
    chunks = list(cut_chunks(tasks, settings.chunk_size, ended))
    num_beginning = sum(len(choose_next(group, ended, options.enough_successes)) for group in group_by_question(tasks))
    yield from stream_chunks(chunks, max(1, round(num_beginning / len(chunks))), options, settings)


def stream_chunks(
    chunks: Sequence[Any],
    chunk_rollouts: int,
    options: WorkerOptions,
    settings: RolloutConfig,
    build_worker: BuildWorker = RolloutWorker,
) -> Iterator[dict[str, Any]]:
    """The rows that workers make of chunks, as they come; a chunk whose engine has died is given to another one.

    Args:
        chunks: what a worker is called with, each in turn.
        chunk_rollouts: rollouts that a chunk begins with, on average.
        build_worker: makes the worker of an actor of Ray.

    Raises:
        DragRayError: what a worker raised, or that the engines stopped.
    """
    earlier = read_log_changes(options.run_dir)
    try:
        with host_tools(options, settings) as hosting:
            yield from _roll_out(chunks, chunk_rollouts, hosting, settings, build_worker).iter_rows()
        return
    except RayError as error:
        reason = find_reason(error, options.run_dir, list_changed_logs(options.run_dir, earlier))
    # Ray's error and its engines hold each other. They must not stay behind this error, which a notebook keeps.
    gc.collect()
    raise reason


def _roll_out(
    chunks: Sequence[Any], chunk_rollouts: int, options: WorkerOptions, settings: RolloutConfig, build_worker: BuildWorker
) -> ray.data.Dataset:
    """The rows of chunks, each of which is itself a row that a pool of engine actors maps."""
    attempt = uuid.uuid4().hex
    artifacts.write_bytes(options.run_dir / ATTEMPT_NAME, attempt.encode())
    _say_room(options, settings)
    options, pool = prepare_engines(options, settings)
    if options.build_engine is VllmEngine:
        say_start(pool.num_engines, options)
    chunks_at_once = count_chunks_at_once(chunk_rollouts, options.concurrent_rollouts, len(chunks) / pool.num_workers)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False  # `Progress` shows what matters
    context.memory_usage_poll_interval_s = None  # a thread for each chunk, for figures that nobody reads
    context.execution_options.preserve_order = False
    context.raise_original_map_exception = True  # `find_reason` looks for it
    # The pool grows when its engines hold all the chunks that they may.
    context.autoscaling_config.actor_pool_util_upscaling_threshold = 1.0
    # Made here: `from_arrow` looks at each table in a task of its own, for whose CPUs a cluster would grow.
    rows = ray.data.from_items([{"chunk": pickle.dumps(chunk)} for chunk in chunks], override_num_blocks=len(chunks))
    return rows.map_batches(
        _WorkerActor,
        fn_constructor_args=(build_worker, options, attempt, _start_keeper(options)),
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


def find_reason(error: RayError, run_dir: Path, logs: Sequence[Path]) -> DragRayError:
    """The error that a worker raised, within what Ray makes of it; without that, what the logs of its engines say."""
    reason: BaseException | None = error
    while reason and (isinstance(reason, RayError) or not isinstance(reason, DragRayError)):
        reason = getattr(reason, "cause", None) or reason.__cause__
    last_words = str(reason or error).partition(_RAY_ADVICE)[0].strip()
    if reason and not isinstance(reason, EngineDiedError):
        return type(reason)(last_words)
    last_words, last_error = last_words.splitlines()[-1], find_last_error(logs)
    if last_error and last_error not in last_words:
        last_words = f"{last_words}; the last error in their log: {last_error}"
    return EngineDiedError(
        f"the engines stopped ({last_words}). See {run_dir / LOGS_DIR_NAME} for their output. "
        "Starting the stage again goes on with what has not finished."
    )


def _start_keeper(options: WorkerOptions) -> Any:
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


class _WorkerActor:
    """A worker as Ray Data calls it."""

    def __init__(self, build_worker: BuildWorker, options: WorkerOptions, attempt: str, keeper: Any) -> None:
        self._refusal: DragRayError | None = None
        try:
            options, keep = resolve_worker_paths(options, attempt, _keep_by(keeper))
            log_to_file(options.local_dir or options.run_dir)
            show_messages()
            self._worker = build_worker(options, RayRecorder(name_tags(options.run_dir), COUNTS | WORKER_COUNTS), keep)
        except DragRayError as error:  # of an actor that does not start Ray would hand on the text alone, in a long report
            self._refusal = error

    async def __call__(self, row: pa.Table) -> AsyncIterator[pa.Table]:
        if self._refusal:
            raise self._refusal
        try:
            yield await self._worker(pickle.loads(row["chunk"][0].as_py()))
        except EngineDiedError:
            os._exit(1)  # Ray starts another engine in another process, and gives its chunks to it
