"""Events of streams, and the messages in which they are sent."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from starlette.types import Message, Receive, Send

from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.guard import Guard, Rules
from drag_ray.serve.ingress.limits import Limits
from drag_ray.serve.ingress.stream_pacing import STREAMED, EventSize, StreamPacing, _Stream  # pyright: ignore[reportPrivateUsage]

EVENTS = [f"data: {number}\n\n".encode() for number in range(40)]
LONG = 100_000
"""replicas that share a proxy: the interval of one stream is then more than half a minute"""


async def receive() -> Message:
    raise AssertionError("nobody asks for the request")


class Client:
    """A client that keeps the messages that arrive. `takes` is called before each is taken."""

    def __init__(self, takes: Callable[[], Awaitable[object]] | None = None) -> None:
        self.messages: list[Message] = []
        self._takes = takes

    async def __call__(self, message: Message) -> None:
        if self._takes:
            await self._takes()
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.messages if message["type"] == "http.response.body"]


async def start(send: Send, content_type: bytes = b"text/event-stream; charset=utf-8") -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", content_type)]})


async def write(send: Send, events: list[bytes], wait: Callable[[], Awaitable[object]] | None = None) -> None:
    for event in events:
        await send({"type": "http.response.body", "body": event, "more_body": True})
        if wait:
            await wait()


async def end(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def stream(wait: Callable[[], Awaitable[object]], events: list[bytes] = EVENTS) -> Callable[[Send], Awaitable[object]]:
    """An answer of these events, with a wait after each."""

    async def answer(send: Send) -> None:
        await start(send)
        await write(send, events, wait)
        await end(send)

    return answer


async def breathe() -> None:
    """Let everything that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def make(answer: Callable[[Send], Awaitable[object]], num_replicas: int = 1) -> Callable[[Client], Awaitable[None]]:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await answer(send)

    pacing = StreamPacing(app, lambda: num_replicas)
    return lambda client: pacing({"type": "http"}, receive, client)


async def test_a_stream_alone_sends_each_event_when_it_is_there() -> None:
    client, seen = Client(), []

    async def answer(send: Send) -> None:
        await start(send)
        for event in EVENTS[:10]:
            await write(send, [event], lambda: asyncio.sleep(0.005))
            seen.append(client.bodies[-1])
        await end(send)

    await make(answer)(client)
    assert seen == EVENTS[:10]
    assert client.bodies == [*EVENTS[:10], b""]


async def test_the_first_events_go_at_once_and_with_them_those_of_the_same_breath() -> None:
    client, seen = Client(), []

    async def answer(send: Send) -> None:
        await start(send)
        await write(send, EVENTS[:2])
        await breathe()
        seen.extend(client.bodies)
        await end(send)

    await make(answer, num_replicas=LONG)(client)
    assert seen == [b"".join(EVENTS[:2])]


async def test_events_wait_for_their_turn_and_the_last_ones_take_them_along() -> None:
    client = Client()
    async with asyncio.timeout(5):
        await make(stream(breathe), num_replicas=LONG)(client)
    assert client.bodies == [EVENTS[0], b"".join(EVENTS[1:])]
    assert [message.get("more_body") for message in client.messages] == [None, True, False]


async def test_many_streams_send_fewer_messages_and_each_its_own_events_in_their_order() -> None:
    num_streams = 60
    clients, request = [Client() for _ in range(num_streams)], make(stream(lambda: asyncio.sleep(0.002)), num_replicas=10)
    await asyncio.gather(*(request(client) for client in clients))
    assert all(b"".join(client.bodies) == b"".join(EVENTS) for client in clients)
    assert sum(len(client.bodies) for client in clients) < num_streams * len(EVENTS) / 3


@pytest.mark.seconds
async def test_a_stream_that_is_over_counts_no_longer() -> None:
    request = make(stream(lambda: asyncio.sleep(0.01), EVENTS[:3]), num_replicas=2)
    for _ in range(20):  # were they counted on, the interval of the last would be 40 ms
        await request(Client())
    client = Client()
    await request(client)
    assert client.bodies == [*EVENTS[:3], b""]


@pytest.mark.parametrize("takes", [lambda: asyncio.sleep(0), lambda: asyncio.sleep(0.003)])
async def test_nothing_is_lost_or_turned_round_where_sending_takes_time(takes: Callable[[], Awaitable[object]]) -> None:
    client = Client(takes)
    await make(stream(lambda: asyncio.sleep(0.001)))(client)
    assert b"".join(client.bodies) == b"".join(EVENTS)
    assert [message["more_body"] for message in client.messages[1:]] == [True] * (len(client.messages) - 2) + [False]


async def test_an_error_in_mid_stream_comes_after_the_events_before_it() -> None:
    client = Client()

    async def answer(send: Send) -> None:
        await start(send)
        await write(send, EVENTS, breathe)
        raise ValueError("the engine is gone")

    with pytest.raises(ValueError, match="the engine is gone"):
        await make(answer, num_replicas=LONG)(client)
    assert b"".join(client.bodies) == b"".join(EVENTS)
    assert client.messages[-1]["more_body"] is True


async def test_a_client_that_has_gone_ends_the_answer() -> None:
    client = Client()
    task = asyncio.ensure_future(make(stream(lambda: asyncio.sleep(60)))(client))
    await breathe()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await breathe()
    assert client.bodies == EVENTS[:1]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_sending_raises_reaches_the_application() -> None:
    async def refuse() -> None:
        if client.messages:
            raise OSError("the connection is closed")

    client, sent = Client(refuse), []

    async def answer(send: Send) -> None:
        await start(send)
        for event in EVENTS:
            await write(send, [event], breathe)
            sent.append(event)

    with pytest.raises(OSError, match="the connection is closed"):
        await make(answer)(client)
    assert len(sent) == 1


@pytest.mark.parametrize("content_type", [b"application/json", b"text/plain"])
async def test_other_answers_pass_through_as_they_are(content_type: bytes) -> None:
    client = Client()

    async def answer(send: Send) -> None:
        await start(send, content_type)
        await write(send, EVENTS)
        assert client.bodies == EVENTS
        await end(send)

    await make(answer, num_replicas=LONG)(client)
    assert client.bodies == [*EVENTS, b""]


def test_an_event_holds_the_tokens_that_are_written_between_two_messages_and_one_while_that_is_not_known() -> None:
    told: list[int] = []
    size = EventSize(told.append)
    size.choose(0.2)
    assert (size.num_tokens, told) == (1, [])
    for number in range(3000):
        size.note_gap(5.0 if number % 10 == 0 else 0.016, 1)  # some events wait for other things than the engine
        size.note_gap(0.0, 1)
    for interval_s, num_tokens in ((0.2, 12), (0.001, 1), (0.05, 3), (1e9, 64)):
        size.choose(interval_s)
        assert size.num_tokens == pytest.approx(num_tokens, abs=1)
    assert told == pytest.approx([12, 1, 3, 64], abs=1)
    for _ in range(3000):
        size.note_gap(0.064, 4)  # of four tokens each: the engine is as fast as before
    size.choose(0.2)
    assert size.num_tokens == pytest.approx(12, abs=1)


async def test_the_engine_is_asked_for_larger_events_before_many_streams_begin_and_for_tokens_again_after_them() -> None:
    sizes: list[int] = []
    begins, ends = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await begins.wait()
        await start(send)
        await write(send, EVENTS[:20], lambda: asyncio.sleep(0.005))
        await ends.wait()
        await end(send)

    pacing = StreamPacing(app, lambda: 1000, sizes.append)
    first = asyncio.create_task(pacing({"type": "http", STREAMED: True}, receive, Client()))
    begins.set()
    ends.set()
    await first
    assert sizes == []  # of how fast the engine is nothing was known
    begins.clear()
    streams = [asyncio.create_task(pacing({"type": "http", STREAMED: True}, receive, Client())) for _ in range(40)]
    others = [asyncio.create_task(pacing({"type": "http", STREAMED: False}, receive, Client())) for _ in range(40)]
    await breathe()
    before = list(sizes)
    begins.set()
    await asyncio.gather(*streams, *others)
    assert before == sorted(before)
    assert before[-1] > 10
    assert sizes[-1] == 1


async def test_a_stream_whose_events_are_of_a_size_that_is_not_known_teaches_nothing() -> None:
    size = EventSize(lambda _: None)
    size.note_gap(0.01, 1)
    size.choose(0.01)
    stream = _Stream(Client(), lambda _: 0.0, size)
    size.choose(0.2)  # while its request is read
    await start(stream)
    await write(stream, EVENTS[:10], lambda: asyncio.sleep(0.03))
    await end(stream)
    stream.end()
    size.choose(0.2)
    assert size.num_tokens == 20


@pytest.mark.parametrize(
    ("body", "streamed"), [({"stream": True}, True), ({"stream": False}, False), ({}, False), ({"stream": 1}, False)]
)
async def test_the_guard_says_whether_an_answer_is_to_be_a_stream(body: dict[str, Any], streamed: bool) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        seen.append(scope[STREAMED])
        await start(send)
        await end(send)

    guard = Guard(app, Rules([], Limits(ServeConfig(max_body_mib=1, max_tokens=9, max_sequences=1, max_question_chars=9))))
    transport = httpx2.ASGITransport(guard, client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.post("/v1/chat/completions", json={"model": "base", **body})
    assert seen == [streamed]
