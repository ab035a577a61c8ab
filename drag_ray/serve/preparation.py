"""Streamed requests on their way to the engine: made ready a few at a time, in the order in which they came.

To read a request, to write its prompt and to split that into tokens takes a millisecond or two of one event loop. Many that come
together would share it and be ready together, all of them when the last one is; clients whose replies have one length would then
end together, and come together again. In turns the first is with the engine while the last waits, nobody is later than the last
was, and clients that came together drift apart.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drag_ray.serve.stream_pacing import STREAMED

_NUM_AT_ONCE = 8
"""Enough for the event loop to be busy while others are in the thread that splits prompts into tokens."""
_TURN_S = 0.05
"""What takes longer, as images do, waits for something other than the event loop, and others need not wait for it."""


class Preparation:
    """ASGI middleware: has `app` begin with a few streamed requests at a time, until it begins their answers.

    Other requests pass through: when the engine has them cannot be seen from here.

    Args:
        app: gives the engine a request right after it has begun the answer.
        num_at_once: requests that are made ready at a time.
        turn_s: seconds after which a request that is not ready no longer counts.
    """

    def __init__(self, app: ASGIApp, num_at_once: int = _NUM_AT_ONCE, turn_s: float = _TURN_S) -> None:
        self.app, self._turn_s = app, turn_s
        self._places = asyncio.Semaphore(num_at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope.get(STREAMED):
            await self.app(scope, receive, send)
            return
        await self._places.acquire()
        turn = _Turn(self._places)
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
