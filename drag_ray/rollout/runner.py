"""Runs a plan of rollouts: Ray Data streams its questions through workers, or kept ones take them, until every rollout is on
disk."""

import gc
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray.exceptions import RayError

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.cluster.nodes import NodeResources, count_gpus, list_nodes, takes_gpus
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.endpoints.spending import SPENDING_NAME, Spending
from drag_ray.engine.vllm import VllmEngine
from drag_ray.errors import DragRayError, EngineDiedError, TooManyFailuresError
from drag_ray.rollout import journal
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.counts import count_files
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
    read_log_changes,
)
from drag_ray.rollout.journal import drop_rollouts_without_images
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import (
    Chunk,
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
from drag_ray.rollout.worker_actors import BuildWorker, MapChunks, WorkerJob, map_by_ray_data, start_keeper
from drag_ray.storage import artifacts
from drag_ray.storage.file_access import make_private

_logger = logging.getLogger(__name__)

_MAX_PASSES = 3
"""Passes over what has not finished: a rollout is lost to a pass when its engine dies between its end and its write."""
_RAY_ADVICE = "\nFailed to apply UDF transform"
"""How the lines begin that Ray Data adds to the message of an error, about retrying what has no use in it."""


def run_plan(
    plan: Sequence[RolloutTask],
    options: WorkerOptions,
    settings: RolloutConfig,
    label: str,
    map_chunks: MapChunks = map_by_ray_data,
) -> dict[str, Any]:
    """Run every rollout of the plan that is not yet on disk in `options.run_dir`.

    Args:
        map_chunks: as of `stream_chunks`.

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
        ended, pending = _run_passes(pending, ended, options, settings, progress, map_chunks)
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
    """The options of each worker, and the pool of them; engines that are kept start at once (see `engine_pool`). Raises
    ConfigError: see `size_pool`."""
    nodes = list_nodes()
    pool = _size_pool(options, settings, nodes)
    engine = share_cpus(share_gpu(options.engine, settings.engines_per_gpu), pool, nodes)
    options = replace(options, engine=engine)
    return borrow_engines(options, pool, settings.workers_per_engine)


def start_engines(agent: AgentConfig, engine: EngineConfig, settings: RolloutConfig, run_dir: Path) -> None:
    """Let the engines that this job keeps start on the GPUs that are there, before there is an index to collect with. Those of an
    agent that is shown images have to know its images first; where questions have some, other engines take the place of these.

    Args:
        run_dir: the folder of the run, which takes their output.
    """
    sees = agent.page_view == "image" or agent.load_tools().shows_images
    if sees or settings.num_engines or engine.backend != "vllm" or engine.device == "cpu" or not count_gpus():
        return
    policies = {"": Policy(engine.model, engine.adapter)}
    sizes = settings.concurrent_rollouts, settings.flush_s
    prepare_engines(WorkerOptions(make_private(run_dir).resolve(), Path(), agent, engine, policies, *sizes), settings)


def _size_pool(options: WorkerOptions, settings: RolloutConfig, nodes: Sequence[NodeResources]) -> Pool:
    return size_pool(settings, options.engine, use_gpu=takes_gpus(options.engine.device), nodes=nodes)


def _say_room(options: WorkerOptions, settings: RolloutConfig) -> None:
    """Say of a cluster that is smaller than what is asked of it that it is used as it is, or waited for."""
    nodes = list_nodes()
    pool = _size_pool(options, settings, nodes)
    room = pool.count_room(nodes)
    if room < pool.num_engines:
        _logger.warning(
            f"engines: {pool.num_engines} are requested, and the cluster has room for {room} now. Those begin, the others when "
            "nodes come. If none will, lower rollout.num_engines or engine.tensor_parallel_size."
        )


def _run_passes(
    pending: list[RolloutTask],
    ended: Ended,
    options: WorkerOptions,
    settings: RolloutConfig,
    progress: Progress,
    map_chunks: MapChunks,
) -> tuple[Ended, list[RolloutTask]]:
    """Hand out what is pending, and again what is left of it then; returns what has ended and what is still pending."""
    for _ in range(_MAX_PASSES):
        if not pending:
            break
        progress.begin_pass(sum(task.id not in ended for task in pending))
        chunks, size = _cut(pending, ended, options, settings)
        for summary in stream_chunks(chunks, size, options, settings, map_chunks=map_chunks):
            progress.add(summary)
        ended = _read_ended(options)
        pending = choose_pending(pending, ended, options.enough_successes)
        journal.forget_begun(options.run_dir)
    return ended, pending


def _read_ended(options: WorkerOptions) -> dict[str, Successes]:
    """The outcomes of the rollouts that need not be run: they have finished, or failed too often."""
    exhausted = find_exhausted(read_failures(options.run_dir), options.max_tries)
    return dict.fromkeys(exhausted) | journal.read_successes(options.run_dir)


def _cut(tasks: Sequence[RolloutTask], ended: Ended, options: WorkerOptions, settings: RolloutConfig) -> tuple[list[Chunk], int]:
    """The chunks of tasks, and rollouts that one begins with, on average."""
    chunks = cut_chunks(tasks, settings.chunk_size, ended)
    num_beginning = sum(len(choose_next(group, ended, options.enough_successes)) for group in group_by_question(tasks))
    return chunks, max(1, round(num_beginning / len(chunks)))


def stream_chunks(
    chunks: Sequence[Any],
    chunk_rollouts: int,
    options: WorkerOptions,
    settings: RolloutConfig,
    build_worker: BuildWorker = RolloutWorker,
    map_chunks: MapChunks = map_by_ray_data,
) -> Iterator[dict[str, Any]]:
    """The rows that workers make of chunks, as they come; a chunk whose engine has died is given to another one. Raises
    DragRayError: what a worker raised, or that the engines stopped.

    Args:
        chunks: what a worker is called with, each in turn.
        chunk_rollouts: rollouts that a chunk begins with, on average.
        build_worker: makes the worker of an actor of Ray.
        map_chunks: hands chunks to workers, which Ray Data starts for them, or which are kept.
    """
    earlier = read_log_changes(options.run_dir)
    try:
        with host_tools(options, settings) as hosting:
            job, pool = _begin_attempt(hosting, settings, build_worker)
            num_slots = job.options.concurrent_rollouts
            chunks_at_once = count_chunks_at_once(chunk_rollouts, num_slots, len(chunks) / pool.num_workers)
            yield from map_chunks(chunks, job, pool, chunks_at_once)
        return
    except RayError as error:
        reason = find_reason(error, options.run_dir, list_changed_logs(options.run_dir, earlier))
    # Ray's error and its engines hold each other. They must not stay behind this error, which a notebook keeps.
    gc.collect()
    raise reason


def _begin_attempt(options: WorkerOptions, settings: RolloutConfig, build_worker: BuildWorker) -> tuple[WorkerJob, Pool]:
    """The job of an attempt's workers, and the pool of them; engines that are kept start."""
    attempt = uuid.uuid4().hex
    artifacts.write_bytes(options.run_dir / ATTEMPT_NAME, attempt.encode())
    _say_room(options, settings)
    options, pool = prepare_engines(options, settings)
    if options.build_engine is VllmEngine:
        say_start(pool.num_engines, options)
    return WorkerJob(build_worker, options, attempt, start_keeper(options)), pool


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
        f"the engines stopped ({last_words}). See {run_dir / LOGS_DIR_NAME} for their output. Start the stage again to continue."
    )
