"""Admission control: how many requests an engine is given at once, how many wait for that, and for how long."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from drag_ray.serve.access.limits import RefusalError

REQUESTS_PER_SEQUENCE = 4
"""Requests that an engine is given for each reply that it writes at a time: it has to see some to choose what to do next."""
WAITED_HEADER = "x-waited-s"
"""Says of a refusal that the engine lives, and how long the request has waited for it."""
_RETRY_AFTER_S = 2
"""A place becomes free with every answer, but to refuse takes time from the engine."""
_RETRY_AFTER_WAIT_S = 5


class Admission:
    """The queue before one engine, first come, first served. For one event loop.

    Args:
        max_ongoing: requests that the engine is given at once.
        max_queued: requests that wait at most.
        max_wait_s: seconds that one of them waits at most.
    """

    def __init__(self, max_ongoing: int, max_queued: int, max_wait_s: float) -> None:
        self._places = asyncio.Semaphore(max_ongoing)
        self._max_queued, self._max_wait_s = max_queued, max_wait_s
        self._num_queued = 0

    @asynccontextmanager
    async def admit(self) -> AsyncGenerator[None]:
        """Hold a place during an answer. Who hangs up while it waits gives up its place.

        Raises:
            RefusalError: too many wait, or it has waited too long.
        """
        await self._take_place()
        try:
            yield
        finally:
            self._places.release()

    async def _take_place(self) -> None:
        if self._places.locked() and self._num_queued >= self._max_queued:
            raise RefusalError(
                429,
                f"{self._num_queued} requests wait, as many as may (serve.max_queued_requests). "
                "Ask again after the seconds of Retry-After.",
                {"Retry-After": str(_RETRY_AFTER_S)},
            )
        self._num_queued += 1
        try:
            async with asyncio.timeout(self._max_wait_s):
                await self._places.acquire()
        except TimeoutError:
            raise RefusalError(
                503,
                f"no engine was free for {self._max_wait_s:g} s (serve.max_wait_s). Ask again after the seconds of Retry-After.",
                {"Retry-After": str(_RETRY_AFTER_WAIT_S), WAITED_HEADER: f"{self._max_wait_s:g}"},
            ) from None
        finally:
            self._num_queued -= 1
