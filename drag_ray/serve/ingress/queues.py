"""The queues before one engine: requests that wait for a place at it, and those on their way to it, made ready a few at a time.

To read a request, to write its prompt and to split that into tokens takes a millisecond or two of one event loop. Many that come
together would share it and be ready together, all of them when the last one is; clients whose replies have one length would then
end together, and come together again, and a stream would wait for requests that came after it. In turns, in the order in which
they came, the first is with the engine while the last waits, nobody is later than the last was, and clients that came together
drift apart.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drag_ray.serve.ingress.limits import RefusalError

REQUESTS_PER_SEQUENCE = 4
"""Requests that an engine is given for each reply that it writes at a time: it has to see some to choose what to do next."""
WAITED_HEADER = "x-waited-s"
"""Says of a refusal that the engine lives, and how long the request has waited for it."""
_RETRY_AFTER_S = 2
"""A place becomes free with every answer, but to refuse takes time from the engine."""
_RETRY_AFTER_WAIT_S = 5


class Admission:
    """The queue before one engine, first come, first served. For one event loop."""

    def __init__(self, max_ongoing: int, max_queued: int, max_wait_s: float) -> None:
        self._places = asyncio.Semaphore(max_ongoing)
        self._max_queued, self._max_wait_s = max_queued, max_wait_s
        self._num_queued = 0

    @asynccontextmanager
    async def admit(self) -> AsyncGenerator[None]:
        """Hold a place during an answer. Who hangs up while it waits gives up its place. Raises RefusalError where too many wait,
        or it has waited too long."""
        await self._take_place()
        try:
            yield
        finally:
            self._places.release()

    async def _take_place(self) -> None:
        if self._places.locked() and self._num_queued >= self._max_queued:
            raise RefusalError(
                429,
                f"{self._num_queued} requests wait, the most that may (serve.max_queued_requests). Try again after the seconds "
                "of Retry-After.",
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


_NUM_AT_ONCE = 8
"""Enough for the event loop to be busy while others are in the thread that splits prompts into tokens."""
_TURN_S = 0.05
"""What takes longer, as images do, waits for something other than the event loop, and others need not wait for it."""


class Preparation:
    """ASGI middleware: has `app` begin with a few requests at a time, until the engine has them, their answers begin, or `turn_s`
    seconds are over.

    What is not posted passes through: the engine has nothing to do with it."""

    def __init__(self, app: ASGIApp, num_at_once: int = _NUM_AT_ONCE, turn_s: float = _TURN_S) -> None:
        self.app, self._turn_s = app, turn_s
        self._places = asyncio.Semaphore(num_at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "POST":
            await self.app(scope, receive, send)
            return
        await self._places.acquire()
        turn = _Turn(self._places)
        _current_turn.set(turn)
        limit = asyncio.get_running_loop().call_later(self._turn_s, turn.end)

        async def send_on(message: Message) -> None:
            turn.end()
            await send(message)

        try:
            await self.app(scope, receive, send_on)
        finally:
            limit.cancel()
            turn.end()


class _Turn:
    """A place that is taken, and given back once."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._is_over = False

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._places.release()


_current_turn: ContextVar[_Turn | None] = ContextVar("turn", default=None)
"""That of the request of which the code that looks at it is a part."""


def end_turns_at(engine: Any) -> None:
    """Have the turn of a request end once the engine, vLLM's `AsyncLLM`, has it."""
    take = engine.add_request

    async def take_and_end_turn(*arguments: Any, **options: Any) -> Any:
        taken = await take(*arguments, **options)
        if turn := _current_turn.get():
            turn.end()
        return taken

    engine.add_request = take_and_end_turn
