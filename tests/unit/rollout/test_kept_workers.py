"""Whom of the workers that are kept chunks are handed to, and when one of them turns to another job."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from drag_ray.errors import ConfigError
from drag_ray.rollout import worker_actors
from drag_ray.rollout.pool import Pool
from drag_ray.rollout.worker_actors import KeptWorker, KeptWorkers

POOL = Pool(num_engines=2, max_engines=2, num_cpus=1, num_gpus=0)
JOB: Any = "job"


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a worker, whose name is a letter, and what comes of it."""

    worker: str
    number: int
    result: Any


class ScriptedRay:
    """Ray as kept workers use it. Calls end in their order, those of workers that are `stuck` never.

    Attributes:
        log: what was asked of workers.
        ended: the workers that were ended.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.ended: list[str] = []
        self.stuck = ""
        self._names = iter("abcdef")

    def start_worker(self, pool: Pool) -> Any:
        name = next(self._names)

        def call(what: str, result: Any) -> Call:
            self.log.append(f"{name}: {what}")
            return Call(name, len(self.log), result)

        prepare = SimpleNamespace(remote=lambda job: call("begin", None))
        run = SimpleNamespace(remote=lambda job, chunk: call(chunk, chunk if isinstance(chunk, Exception) else {"by": [name]}))
        worker = type("Worker", (), {"name": name, "prepare": prepare, "run": run})
        return worker()

    def put(self, value: Any) -> Any:
        return value

    def wait(self, calls: list[Call]) -> tuple[list[Call], list[Call]]:
        return [min((call for call in calls if call.worker not in self.stuck), key=lambda call: call.number)], []

    def get(self, call: Call) -> pa.Table | None:
        if isinstance(call.result, Exception):
            raise call.result
        return call.result and pa.table(call.result)

    def kill(self, worker: Any) -> None:
        self.ended.append(worker.name)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedRay:
    scripted = ScriptedRay()
    monkeypatch.setattr(worker_actors, "ray", scripted)
    monkeypatch.setattr(worker_actors, "_start_worker", scripted.start_worker)
    return scripted


def test_workers_stay_and_have_no_more_chunks_at_once_than_they_may(scripted: ScriptedRay) -> None:
    with KeptWorkers() as workers:
        rows = list(workers.map_chunks(["1", "2", "3", "4", "5"], JOB, POOL, 2))
        assert scripted.log == ["a: begin", "b: begin", "a: 1", "a: 2", "b: 3", "b: 4", "a: 5"]
        assert rows == [{"by": worker} for worker in "aabba"]
        scripted.log.clear()
        assert list(workers.map_chunks(["1"], JOB, POOL, 2)) == [{"by": "a"}]
        assert scripted.log == ["a: begin", "a: 1"]
        assert scripted.ended == []
    assert sorted(scripted.ended) == ["a", "b"]


def test_a_worker_that_has_yet_to_begin_is_given_nothing_and_comes_to_the_next_job(scripted: ScriptedRay) -> None:
    scripted.stuck = "a"
    with KeptWorkers() as workers:
        assert list(workers.map_chunks(["1", "2", "3"], JOB, POOL, 1)) == [{"by": "b"}] * 3
        assert scripted.ended == []
        scripted.stuck = ""
        list(workers.map_chunks(["1", "2"], JOB, POOL, 1))
        assert scripted.log[-4:] == ["a: begin", "b: begin", "a: 1", "b: 2"]


def test_workers_that_are_still_at_a_job_which_failed_are_ended(scripted: ScriptedRay) -> None:
    with KeptWorkers() as workers:
        with pytest.raises(ConfigError, match="broken"):
            list(workers.map_chunks([ConfigError("broken"), "2"], JOB, POOL, 1))
        assert scripted.ended == ["b"]


class ScriptedJob:
    """A job whose worker says of what attempt it is, and of which it was before."""

    def __init__(self, attempt: str) -> None:
        self.attempt = attempt
        self.num_begun = 0

    def begin(self, earlier: Callable[[str], Awaitable[str]] | None) -> Callable[[str], Awaitable[str]]:
        self.num_begun += 1

        async def run(chunk: str) -> str:
            return f"{await earlier('') if earlier else ''}{self.attempt}{chunk}"

        return run


async def test_a_worker_begins_each_job_once_also_one_that_it_was_not_told_of_before() -> None:
    first, second = ScriptedJob("x"), ScriptedJob("y")
    worker: Any = KeptWorker()
    await worker.prepare(first)
    assert await asyncio.gather(worker.run(first, 1), worker.run(first, 2)) == ["x1", "x2"]
    assert await asyncio.gather(worker.run(second, 1), worker.run(second, 2)) == ["xy1", "xy2"]
    assert (first.num_begun, second.num_begun) == (1, 1)
