"""The work queue and admission control under any sequence of claims, deaths of engines, ends of rollouts and impatience."""

import asyncio
from collections.abc import Collection
from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drag_ray.rollout.plan import Chunk
from drag_ray.rollout.work_queue import AdmissionControl, WorkQueue


class Queue(RuleBasedStateMachine):
    """Every chunk goes to one claim, in order, and a claim that comes again gets what it had."""

    @initialize(num_chunks=st.integers(0, 8))
    def make(self, num_chunks: int) -> None:
        self.left = [Chunk(number, [], {}) for number in range(num_chunks)]
        self.queue = WorkQueue(self.left)
        self.given: dict[int, Chunk | None] = {}

    @rule(claim=st.integers(0, 12))
    def claim(self, claim: int) -> None:
        expected = self.given[claim] if claim in self.given else (self.left.pop(0) if self.left else None)
        assert self.queue.claim(claim) is expected
        self.given[claim] = expected

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.left = []

    @invariant()
    def no_chunk_is_given_twice(self) -> None:
        numbers = [chunk.number for chunk in getattr(self, "given", {}).values() if chunk]
        assert len(numbers) == len(set(numbers))


class Admission(RuleBasedStateMachine):
    """Nobody waits while a slot is free that nobody before waits for, and nobody is let in while none is."""

    @initialize(num_slots=st.integers(1, 4))
    def make(self, num_slots: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.control = AdmissionControl(num_slots)
        self.num_slots: float = num_slots
        self.admitted = set[str]()
        self.waiting: list[tuple[asyncio.Task[None], Collection[str]]] = []
        self.num_asked = 0

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            for task, _ in self.waiting:
                task.cancel()
            self._turn()
            self.loop.close()

    @rule(size=st.integers(1, 3))
    def ask(self, size: int) -> None:
        ids = [f"{self.num_asked}-{number}" for number in range(size)]
        self.num_asked += 1
        self.waiting.append((self.loop.create_task(self.control.wait(ids)), ids))
        self._settle()

    @precondition(lambda self: self.admitted)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        ended = data.draw(st.sets(st.sampled_from(sorted(self.admitted)), min_size=1))
        self.admitted -= ended
        self.control.remove([*ended, "unknown"])
        self._settle()

    @rule(number=st.integers(0, 3))
    def add(self, number: int) -> None:
        self.control.add([f"own {number}"])
        self.admitted.add(f"own {number}")

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        task, ids = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        task.cancel()
        self._turn()
        self.control.remove(ids)  # as whoever gives up does
        self._settle()

    @rule()
    def admit_all(self) -> None:
        self.control.admit_all()
        self.num_slots = float("inf")
        self._settle()

    def _settle(self) -> None:
        """Those who are let in now, by the rule; and whether these, and no others, were."""
        self._turn()
        while self.waiting and len(self.admitted) < self.num_slots:
            task, ids = self.waiting.pop(0)
            assert task.done()
            task.result()
            self.admitted |= set(ids)
        assert not any(task.done() for task, _ in self.waiting)

    def _turn(self) -> None:
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))
        for task, _ in self.waiting:
            if task.cancelled():
                with suppress(asyncio.CancelledError):
                    task.result()


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAdmission = Admission.TestCase
TestAdmission.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
