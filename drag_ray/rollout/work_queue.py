"""The work queue of a run: engines claim its next chunk of rollouts when admission control lets them have more."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager

from drag_ray.rollout.plan import Chunk


class WorkQueue:
    """Gives each claim a chunk, in their order, as long as there are any.

    Who handed out the chunks themselves would decide at the start which engine gets what, and the engine whose rollouts take
    longer than the others' would be the last by far. A claim that comes again has lost its engine, and gets the same chunk.
    """

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._unclaimed = deque(chunks)
        self._claimed: dict[int, Chunk | None] = {}

    def claim(self, claim: int) -> Chunk | None:
        """The chunk of the claim with this number; None if there was none left."""
        if claim not in self._claimed:
            self._claimed[claim] = self._unclaimed.popleft() if self._unclaimed else None
        return self._claimed[claim]

    def clear(self) -> None:
        """Leave nothing to claim: the run has ended, perhaps by an error, and engines shall end too."""
        self._unclaimed.clear()


class AdmissionControl:
    """Admits rollouts to an engine while it has a slot that none of those that it was given has or waits for.

    Args:
        num_slots: rollouts that the engine runs at the same time.
    """

    def __init__(self, num_slots: int) -> None:
        self._num_slots: float = num_slots
        self._admitted = set[str]()
        self._waiting = deque[tuple[asyncio.Future[None], Collection[str]]]()

    def add(self, rollout_ids: Iterable[str]) -> None:
        """Admit these at once."""
        self._admitted.update(rollout_ids)

    def remove(self, rollout_ids: Iterable[str]) -> None:
        """These have ended, or need no slots after all; others than those that were admitted do not matter."""
        self._admitted.difference_update(rollout_ids)
        self._admit()

    async def wait(self, rollout_ids: Collection[str]) -> None:
        """Admit these when a slot is free that no rollout waits for, and nobody who came before waits for it."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, rollout_ids))
        self._admit()
        await turn

    def admit_all(self) -> None:
        """Let nobody wait, from now on."""
        self._num_slots = math.inf
        self._admit()

    def _admit(self) -> None:
        """At once all that there are slots for: with a busy event loop, one after the other would take a while."""
        while self._waiting and len(self._admitted) < self._num_slots:
            turn, rollout_ids = self._waiting.popleft()
            if not turn.cancelled():
                self.add(rollout_ids)
                turn.set_result(None)


@asynccontextmanager
async def claim_chunk(
    claim: int, ask: Callable[[int], Awaitable[Chunk | None]], admission: AdmissionControl, chunk_rollouts: int
) -> AsyncGenerator[Chunk | None]:
    """The chunk of a claim, once an engine admits another one, and its slots within the context.

    They are kept while the chunk is on its way, which to an engine with a busy event loop takes a while, so that as many chunks
    come at the same time as there are slots for.

    Args:
        claim: the number of the claim.
        ask: `WorkQueue.claim`, from afar.
        admission: the engine's.
        chunk_rollouts: rollouts that a chunk begins with, on average.
    """
    expected = [f"{number} of claim {claim}" for number in range(chunk_rollouts)]
    try:
        await admission.wait(expected)
        chunk = await ask(claim)
        if chunk is None:
            admission.admit_all()  # the other claims find nothing either
        yield chunk
    finally:
        admission.remove(expected)


def count_claims(chunk_rollouts: int, concurrent_rollouts: int) -> int:
    """Claims that an engine holds at most: the chunks that it works on, and one that waits to be admitted.

    A chunk of n rollouts is worked on until the longest of them ends, for H_n = 1 + 1/2 + ... + 1/n times as long as one
    of them if their durations are exponential; so many more chunks keep the slots full.

    Args:
        chunk_rollouts: rollouts that a chunk begins with.
        concurrent_rollouts: slots of an engine.
    """
    stretch = sum(1 / slot for slot in range(1, chunk_rollouts + 1))
    return math.ceil(concurrent_rollouts / chunk_rollouts * stretch) + 1
