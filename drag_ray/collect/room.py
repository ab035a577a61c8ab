"""Whether an engine has room for more rollouts than it was given."""

import asyncio
from collections.abc import Iterable


class Room:
    """The rollouts that have one of an engine's places or wait for one, by their ids."""

    def __init__(self, num_places: int) -> None:
        self._num_places = num_places
        self._rollouts = set[str]()
        self._is_there = asyncio.Event()
        self._note()

    def enter(self, rollout_ids: Iterable[str]) -> None:
        """These want places from now on."""
        self._rollouts.update(rollout_ids)
        self._note()

    def leave(self, rollout_ids: Iterable[str]) -> None:
        """These have ended, or want no places after all; others than those that entered do not matter."""
        self._rollouts.difference_update(rollout_ids)
        self._note()

    async def wait(self) -> None:
        """Return when a place is free that no rollout waits for."""
        await self._is_there.wait()

    def _note(self) -> None:
        if len(self._rollouts) < self._num_places:
            self._is_there.set()
        else:
            self._is_there.clear()
