"""One engine with its index and its journal, fed with chunks of rollouts. It knows nothing of the actor that holds it.

Rollouts that an engine took with it when it died run again, a few at first: one of them may have killed it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar, TypeVarTuple

import pyarrow as pa

from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.retrieval import open_page_index
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.spans import RolloutTracer
from drag_ray.agent.task import RolloutTask
from drag_ray.baselines.rollouts import BaselineOptions, build_proposals, build_rollouts
from drag_ray.cluster.metrics import Recorder
from drag_ray.errors import BudgetError, EngineDiedError
from drag_ray.messages import about
from drag_ray.rollout.counts import COUNTS, WORKER_COUNTS, count_chunk
from drag_ray.rollout.degraded_images import DegradedSearcher, open_degraded_images
from drag_ray.rollout.failures import ENGINE_DIED, find_exhausted, read_failures
from drag_ray.rollout.journal import Journal, Keep, begin_chunk, begin_rollout, end_rollout, keep_here, read_finished
from drag_ray.rollout.options import WorkerOptions, locate_index, open_stores, start_engine
from drag_ray.rollout.plan import Chunk, Successes, choose_next, group_by_question, list_successes
from drag_ray.search.config import SYNTAX_HELP
from drag_ray.search.searcher import Searcher
from drag_ray.types import Trajectory

_logger = logging.getLogger(__name__)

_SHARE = 4
"""of an engine's slots one in so many is the most that they have beside them"""


class Quarantine:
    """Admits one rollout, and one more for each that has ended while the engine lives.

    So the one that kills engines takes few others with it, and those of a node that was lost, hundreds of them without a fault,
    are soon through. Whoever has one try left is admitted when nobody else is, and nobody beside it: another one's fault cannot
    be held against it. `num_slots`: rollouts that the engine runs at the same time, outside.
    """

    def __init__(self, num_slots: int) -> None:
        self._most = max(1, num_slots // _SHARE)
        self._num_places = 1
        self._num_inside = 0
        self._is_closed = False
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def enter(self, alone: bool) -> AsyncGenerator[None]:
        """A place within the context."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._num_inside if alone else self._has_place())
            self._num_inside += 1
            self._is_closed = alone
        try:
            yield
            self._num_places = min(self._most, self._num_places + 1)
        finally:
            async with self._changed:
                self._num_inside -= 1
                self._is_closed = False
                self._changed.notify_all()

    def _has_place(self) -> bool:
        return not self._is_closed and self._num_inside < self._num_places


_POLL_S = 0.05
"""between looks whether rollouts are still running"""
_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")

SUMMARY_SCHEMA = pa.schema([*((name, pa.int64()) for name in COUNTS | WORKER_COUNTS), ("errors", pa.list_(pa.string()))])
"""What a chunk reports when it is through."""


class RolloutWorker:
    """Runs chunks of rollouts, many at once.

    A slot is free again when its rollout ends, whatever step the others are at, and the next rollout of any chunk takes
    it. One that failed is tried again when it is its turn.

    A chunk that is given out again has lost its engine. The rollouts that were running then are quarantined: one try of
    theirs has failed, and they go on a few at a time, so that the one that kills engines is soon found.
    """

    def __init__(self, options: WorkerOptions, recorder: Recorder | None = None, keep: Keep = keep_here) -> None:
        options.agent.load_tools()  # what they lack here is known before an engine starts
        self._recorder = recorder or Recorder()
        self._subject = options.tags
        self._disk = ThreadPoolExecutor(1, "journal")  # a write must not hold up the rollouts, and writes keep their order
        self.begin(options, keep)
        index_dir = locate_index(options)
        self._searcher = Searcher(index_dir)
        self._degraded = open_degraded_images(options)
        self._pages = DegradedSearcher(index_dir, self._degraded) if self._degraded else self._searcher
        index = open_page_index(self._pages, options.agent.retrieval, options.vectors_dir, options.agent.dense_weight)
        self._environment = SearchEnvironment(index, options.agent.top_k, options.agent.depth)
        self._callers = options.build_callers()
        tags = {f"drag_ray.{name}": value for name, value in self._subject.items()}
        self._tracer = RolloutTracer(options.telemetry, options.engine.backend, tags)

    def begin(self, options: WorkerOptions, keep: Keep) -> None:
        """Go on with other policies, in another folder. No chunk may be under way.

        Args:
            options: as those before, but for these and for what makes the engine.
            keep: calls functions where the other folder is seen.
        """
        self._options, self._keep = options, keep
        self._generate = start_engine(options)
        self._rollouts: dict[tuple[str, str], Rollouts] = {}
        self._journal = Journal(options.run_dir, options.flush_s, keep)
        self._slots = asyncio.Semaphore(options.concurrent_rollouts)
        self._quarantine = Quarantine(options.concurrent_rollouts)
        self._end: EngineDiedError | BudgetError | None = None
        self._failures = keep(read_failures, options.run_dir)
        self._num_pending = self._num_running = 0

    async def __call__(self, chunk: Chunk) -> pa.Table:
        """Run what the questions of a chunk need; returns its summary."""
        tasks, ended = chunk.tasks, dict(chunk.ended)
        trajectories: list[Trajectory] = []
        begun = (begin_chunk, self._options.run_dir, chunk.number, self._journal.engine)
        if engines := await self._on_disk(self._keep, *begun):
            trajectories = await self._on_disk(self._take_over, tasks, ended, engines)
        num_pending = sum(task.id not in ended for task in tasks)
        self._num_pending += num_pending
        try:
            groups = await asyncio.gather(*(self._run_question(group, ended) for group in group_by_question(tasks)))
        except EngineDiedError:
            await self._on_disk(self._journal.flush)
            raise
        except BudgetError:
            await self._let_run_out()
            raise
        if self._num_pending == 0:
            await self._on_disk(self._journal.flush)  # perhaps nothing comes after this, and nobody tells an actor that it ends
            await self._tracer.deliver()
        run = [trajectory for group in groups for trajectory in group]
        return await self._summarise([*trajectories, *run], num_skipped=num_pending - len(run))

    async def _run_question(self, tasks: Sequence[RolloutTask], ended: dict[str, Successes]) -> list[Trajectory]:
        """Run what a question needs, and note in `ended` what came of it."""
        trajectories: list[Trajectory] = []
        while next_tasks := choose_next(tasks, ended, self._options.enough_successes):
            latest = await asyncio.gather(*(self._run(task) for task in next_tasks))
            ended.update((trajectory.id, list_successes(trajectory)) for trajectory in latest)
            trajectories += latest
        self._num_pending -= sum(task.id not in ended for task in tasks)
        return trajectories

    def _take_over(self, tasks: Sequence[RolloutTask], ended: dict[str, Successes], engines: Sequence[str]) -> list[Trajectory]:
        """Note in `ended` what came of a chunk before its engines died. Returns the rollouts that ended in these engines, which
        did not live to report them; of those that are not tried again what is known."""
        run_dir = self._options.run_dir
        for task in tasks:
            if self._keep(end_rollout, run_dir, task.id):
                self._journal.add(self._choose_rollouts(task).fail(task, ENGINE_DIED))
        self._journal.flush()
        self._failures = self._keep(read_failures, run_dir)
        unreported = {task.id: task for task in tasks if task.id not in ended}
        finished = self._keep(read_finished, run_dir, tuple(unreported), engines)
        exhausted = find_exhausted(self._failures, self._options.max_tries) & unreported.keys() - {kept.id for kept in finished}
        ended.update(dict.fromkeys(exhausted) | {trajectory.id: list_successes(trajectory) for trajectory in finished})
        given_up = (unreported[name] for name in sorted(exhausted))
        return finished + [self._choose_rollouts(task).fail(task, self._failures[task.id].error) for task in given_up]

    def _choose_rollouts(self, task: RolloutTask) -> Rollouts:
        """Those of the task's policy, or of a baseline that asks with it."""
        key = (task.policy, task.baseline)
        if key not in self._rollouts:
            self._rollouts[key] = self._build_rollouts(*key)
        return self._rollouts[key]

    def _build_rollouts(self, policy_name: str, baseline: str) -> Rollouts:
        options, policy = self._options, self._options.policies[policy_name]
        if not baseline:
            record = self._searcher.record
            search = (self._environment, record.fingerprint, SYNTAX_HELP[record.syntax])
            asked = (options.agent, policy, self._generate, *search, options.prompt_sets)
            return Rollouts(*asked, pages=self._pages, images=open_stores(options), callers=self._callers)
        build, baselines = (build_rollouts, options.baselines) if options.baselines else (build_proposals, options.proposers)
        assert baselines, "rollouts of a baseline need its options"
        return build(baseline, BaselineOptions(options.agent, baselines), self._searcher, self._generate, policy)

    async def _run(self, task: RolloutTask) -> Trajectory:
        failed = self._failures.get(task.id)
        tries = failed.tries + 1 if failed else 1
        trajectory = await self._try(task, is_last=tries >= self._options.max_tries)
        while trajectory.error and tries < self._options.max_tries:
            tries += 1
            trajectory = await self._try(task, is_last=tries >= self._options.max_tries)
        self._num_pending -= 1
        self._note_load()
        return trajectory

    async def _try(self, task: RolloutTask, is_last: bool) -> Trajectory:
        async with self._quarantine.enter(is_last) if self._is_quarantined(task) else self._slots:
            if self._end:
                raise self._end
            self._note_load(started=1)
            try:
                await asyncio.to_thread(self._keep, begin_rollout, self._options.run_dir, task.id)
                with about(**self._subject, question=task.question.id):
                    asked = await asyncio.to_thread(self._degraded.replace_asked, task) if self._degraded else task
                    trajectory = await self._tracer.run(self._choose_rollouts(task), asked)
                    if trajectory.error:
                        _logger.warning("the rollout %s failed: %s", trajectory.id, trajectory.error)
            except (EngineDiedError, BudgetError) as error:
                self._end = error
                raise
            finally:
                self._note_load(started=-1)
            # Before its slot is free: an engine that dies then repeats no more rollouts than there are slots.
            await self._on_disk(self._put_away, trajectory)
        return trajectory

    async def _let_run_out(self) -> None:
        """Let the rollouts end that are still running: replies that are under way are paid for."""
        while self._num_running:
            await asyncio.sleep(_POLL_S)
        await self._on_disk(self._journal.flush)

    def _is_quarantined(self, task: RolloutTask) -> bool:
        failed = self._failures.get(task.id)
        return bool(failed and failed.engine_died)

    def _put_away(self, trajectory: Trajectory) -> None:
        self._keep(end_rollout, self._options.run_dir, trajectory.id)
        self._journal.add(trajectory)

    async def _on_disk(self, work: Callable[[*_Args], _Result], *args: *_Args) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *args)

    def _note_load(self, started: int = 0) -> None:
        self._num_running += started
        self._recorder.set_load(self._num_running, self._num_pending - self._num_running)

    async def _summarise(self, trajectories: Sequence[Trajectory], num_skipped: int) -> pa.Table:
        num_hinted = sum(trajectory.provenance.hinted and not trajectory.error for trajectory in trajectories)
        counted = [trajectory for trajectory in trajectories if trajectory.error or not trajectory.provenance.hinted]
        counts = await asyncio.to_thread(count_chunk, counted)
        num_shared, self._environment.num_shared = self._environment.num_shared, 0
        counts |= {"skipped": num_skipped, "hinted": num_hinted, "shared_searches": num_shared}
        self._recorder.add_chunk(counts, [trajectory.duration_s for trajectory in trajectories])
        errors = [trajectory.error for trajectory in trajectories if trajectory.error]
        return pa.Table.from_pylist([{**counts, "errors": errors}], schema=SUMMARY_SCHEMA)
