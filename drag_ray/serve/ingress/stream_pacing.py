"""Server-sent events of many streams, sent in as few messages as the way to the clients can take.

Each message from a replica to the proxy costs both of them some time, however short it is, and the proxy is one process. Two
hundred replies that are streamed token by token would fill it, and the requests that come next would wait behind them. So events
of a stream wait for one another, the longer the more streams there are; those of one stream alone wait for nothing. No event is
changed, and none overtakes another of its stream.

To make an event costs the engine's application most of its time, so where events wait for one another anyway, the engine is asked
for as many tokens an event as it writes meanwhile.
"""

import asyncio
import random
import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MESSAGES_PER_S = 1000
"""of the streams of all replicas together: a third of what one proxy passes on"""
_SPREAD = 0.5
"""of an interval, by which it varies at random: streams that begin together would otherwise go on sending together"""

_MAX_EVENT_TOKENS = 64
_MIN_STEP_S = 0.001
"""Events that follow one another faster were not waiting for the engine."""
_STEP_GAIN = 1.01

STREAMED = "drag_ray.streamed"
"""The key of a request's scope that says whether its answer is to be a stream, where that is known."""
PackFn = Callable[[int], None]
"""Is told how many tokens an event of a stream that begins is to hold."""


class EventSize:
    """Size of an event in tokens: as many as the engine writes for a stream from one of its messages to the next."""

    def __init__(self, pack: PackFn) -> None:
        self._pack = pack
        self._step_s = 0.0
        self.num_tokens = 1

    def note_gap(self, gap_s: float, num_tokens: int) -> None:
        """Learn from the time between two events of a stream; of all that are seen the median counts, whatever some wait for."""
        step_s = gap_s / num_tokens
        if step_s < _MIN_STEP_S:
            return
        self._step_s = self._step_s or step_s
        self._step_s *= _STEP_GAIN if step_s > self._step_s else 1 / _STEP_GAIN

    def choose(self, interval_s: float) -> None:
        """Fit the size to the seconds between two messages of a stream."""
        fitting = int(interval_s / self._step_s) if self._step_s else 1
        num_tokens = min(max(1, fitting), _MAX_EVENT_TOKENS)
        if num_tokens != self.num_tokens:
            self.num_tokens = num_tokens
            self._pack(num_tokens)


class StreamPacing:
    """ASGI middleware: what a stream sends between its first events and its last waits until it is the stream's turn again.

    The first events go at once, with what the application sends in the same breath, and so do the last. An answer that is no
    stream of events passes through as it is.
    """

    def __init__(self, app: ASGIApp, count_replicas: Callable[[], int] = lambda: 1, pack: PackFn = lambda _: None) -> None:
        self.app, self._count_replicas = app, count_replicas
        self._num_streams = self._num_expected = 0
        self._event_size = EventSize(pack)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_expected = bool(scope.get(STREAMED))
        self._num_expected += is_expected
        self._choose_size()
        stream = _Stream(send, self._draw_interval, self._event_size)
        try:
            await self.app(scope, receive, stream)
        except Exception:
            await stream.flush()  # the client sees how far it came
            raise
        finally:
            self._num_streams -= stream.end()
            self._num_expected -= is_expected
            self._choose_size()

    def _draw_interval(self, num_new: int) -> float:
        """Seconds from one message of a stream to its next, once there are so many more streams."""
        self._num_streams += num_new
        interval_s = self._compute_interval(self._num_streams)
        return interval_s * random.uniform(1 - _SPREAD, 1 + _SPREAD)

    def _choose_size(self) -> None:
        """Fit the event size to the streams that are expected: the engine asks for it before they begin."""
        self._event_size.choose(self._compute_interval(max(self._num_streams, self._num_expected)))

    def _compute_interval(self, num_streams: int) -> float:
        return num_streams * self._count_replicas() / _MESSAGES_PER_S


class _Stream:
    """A `send` that waits for turns, for the answer to one request. `draw_interval` gives the seconds between two messages from
    the number of streams that are new; `event_size` is told how events follow one another."""

    def __init__(self, send: Send, draw_interval: Callable[[int], float], event_size: EventSize) -> None:
        self._send, self._draw_interval, self._event_size = send, draw_interval, event_size
        self._num_event_tokens = event_size.num_tokens
        self._event_at, self._teaches = 0.0, False
        self._is_paced = False
        self._events: list[bytes] = []
        self._has_events = asyncio.Event()
        self._sends = asyncio.Lock()
        self._turns: asyncio.Task[None] | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            content_type = Headers(raw=list(message["headers"])).get("content-type", "")
            self._is_paced = content_type.startswith("text/event-stream")
        if not self._is_paced or message["type"] != "http.response.body":
            await self._send(message)
            return
        if self._turns and self._turns.done():
            self._turns.result()  # raises what sending has raised
        now = time.monotonic()
        if not self._event_at:
            # Where sizes change while the request is read, nobody knows which of them the engine has taken.
            self._teaches = abs(self._event_size.num_tokens - self._num_event_tokens) <= 1
        elif self._teaches:
            self._event_size.note_gap(now - self._event_at, self._num_event_tokens)
        self._event_at = now
        self._events.append(message.get("body", b""))
        if not message.get("more_body", False):
            await self.flush(is_last=True)
        elif self._turns:
            self._has_events.set()
        else:
            self._turns = asyncio.create_task(self._take_turns(self._draw_interval(1)))

    async def _take_turns(self, interval_s: float) -> None:
        while True:
            self._has_events.clear()
            await self.flush()
            await asyncio.sleep(interval_s)
            await self._has_events.wait()
            interval_s = self._draw_interval(0)

    async def flush(self, is_last: bool = False) -> None:
        """Send the events that wait, in one message."""
        async with self._sends:
            events, self._events = self._events, []
            if events or is_last:
                await self._send({"type": "http.response.body", "body": b"".join(events), "more_body": not is_last})

    def end(self) -> int:
        """Take no more turns. Returns 1 for an answer that took some, else 0."""
        if not self._turns:
            return 0
        if not self._turns.cancel() and not self._turns.cancelled():
            self._turns.exception()  # the application has raised it, or did not wait for it
        return 1
