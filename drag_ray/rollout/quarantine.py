"""The rollouts that an engine took with it when it died, one of which may have killed it, run again: a few at first."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

_SHARE = 4
"""of an engine's slots one in so many is the most that they have beside them"""


class Quarantine:
    """Admits one rollout, and one more for each that has ended while the engine lives.

    So the one that kills engines takes few others with it, and those of a node that was lost, hundreds of them without a fault,
    are soon through. Whoever has one try left is admitted when nobody else is, and nobody beside it: another one's fault cannot
    be held against it.

    Args:
        num_slots: rollouts that the engine runs at the same time, outside.
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
