"""Whether an engine has room for more rollouts than it was given."""

import asyncio
import math
from collections import deque
from collections.abc import Collection, Iterable


class Room:
    """The rollouts that have one of an engine's places or wait for one, by their ids."""

    def __init__(self, num_places: int) -> None:
        self._num_places: float = num_places
        self._rollouts = set[str]()
        self._waiting = deque[tuple[asyncio.Future[None], Collection[str]]]()

    def enter(self, rollout_ids: Iterable[str]) -> None:
        """These want places from now on."""
        self._rollouts.update(rollout_ids)

    def leave(self, rollout_ids: Iterable[str]) -> None:
        """These have ended, or want no places after all; others than those that entered do not matter."""
        self._rollouts.difference_update(rollout_ids)
        self._admit()

    async def wait(self, rollout_ids: Collection[str]) -> None:
        """Enter when a place is free that no rollout waits for, and nobody who came before waits for it."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, rollout_ids))
        self._admit()
        await turn

    def open(self) -> None:
        """Let all of them in, from now on."""
        self._num_places = math.inf
        self._admit()

    def _admit(self) -> None:
        """At once all for whom there is room: with a busy event loop, one after the other would take a while."""
        while self._waiting and len(self._rollouts) < self._num_places:
            turn, rollout_ids = self._waiting.popleft()
            if not turn.cancelled():
                self.enter(rollout_ids)
                turn.set_result(None)
