"""Requests on their way from the proxy to an engine's own server, which is a real one."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drag_ray.serve.ingress.relay import LostEngineError, Relay


@contextlib.asynccontextmanager
async def serve(app: ASGIApp) -> AsyncGenerator[str]:
    """The address of a server of an application."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
        server.install_signal_handlers = lambda: None  # pyright: ignore[reportAttributeAccessIssue], as Ray Serve does
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            await serving


@contextlib.asynccontextmanager
async def open_relay() -> AsyncGenerator[Relay]:
    relay = Relay()
    yield relay
    await relay.close()


def open_client(relay: Relay, *addresses: str) -> httpx2.AsyncClient:
    """A client of a proxy that does nothing but pass requests on."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        address = relay.choose(addresses)
        assert address
        assert await relay.pass_on(address, scope, receive, send)

    transport = httpx2.ASGITransport(app, client=("10.1.2.3", 1))
    return httpx2.AsyncClient(transport=transport, base_url="http://endpoint.example")


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    body = await request.body()
    seen = {"target": scope["raw_path"].decode() + "?" + scope["query_string"].decode(), "method": request.method}
    seen |= {"headers": [[name, value] for name, value in request.headers.items()], "body": body.decode(), "num_bytes": len(body)}
    response = JSONResponse(seen, 201, {"x-one": "1", "retry-after": "7"})
    response.headers.append("set-cookie", "a=1")
    response.headers.append("set-cookie", "b=2")
    await response(scope, receive, send)


async def test_a_request_and_its_answer_arrive_as_they_were_sent() -> None:
    async with serve(echo) as address, open_relay() as relay, open_client(relay, address) as client:
        headers = {
            "authorization": "Bearer schlüssel",
            "connection": "close, x-odd",
            "x-forwarded-for": "127.0.0.1",
            "accept": "*",
        }
        sent = [(name.encode(), value.encode()) for name, value in headers.items()]
        answer = await client.post("/v1/a%2Fb//c?q=%20x&q=2", content=b'{"n": 1}', headers=sent)
        seen = answer.json()
        assert (answer.status_code, seen["method"], seen["body"]) == (201, "POST", '{"n": 1}')
        assert seen["target"] == "/v1/a%2Fb//c?q=%20x&q=2"
        assert (answer.headers["x-one"], answer.headers["retry-after"]) == ("1", "7")
        assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
        assert answer.headers.get_list("content-length") == [str(len(answer.content))]
        arrived = dict(seen["headers"])
        assert arrived["host"] == "endpoint.example"
        assert arrived["authorization"].encode("latin-1").decode() == "Bearer schlüssel"
        assert arrived["x-forwarded-for"] == "10.1.2.3"  # the proxy's word for who asks, not the client's own
        assert arrived["content-length"] == "8"
        assert "connection" not in arrived
        again = (await client.get("/health")).json()
        assert "cookie" not in dict(again["headers"])
        assert again["body"] == ""


async def test_a_body_that_comes_in_parts_is_passed_on_in_parts() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    async with serve(echo) as address, open_relay() as relay, open_client(relay, address) as client:
        assert (await client.post("/", content=parts())).json()["num_bytes"] == 1_000_000


async def test_headers_may_be_as_long_as_the_engine_takes_them() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(headers={"x-request-id": Request(scope).headers["x-request-id"]})(scope, receive, send)

    async with serve(app) as address, open_relay() as relay, open_client(relay, address) as client:
        long = "x" * 50_000
        assert (await client.get("/", headers={"x-request-id": long})).headers["x-request-id"] == long


async def call(relay: Relay, address: str, receive: Receive, send: Callable[[Message], Any]) -> bool:
    scope = {"type": "http", "method": "POST", "raw_path": b"/", "query_string": b"", "headers": [(b"content-length", b"2")]}
    return await relay.pass_on(address, scope, receive, send)


async def test_a_stream_is_passed_on_while_it_is_written_and_ends_when_the_client_hangs_up() -> None:
    ended, hung_up = asyncio.Event(), asyncio.Event()

    async def write() -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\n\n"
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await StreamingResponse(write(), media_type="text/event-stream")(scope, receive, send)

    messages: list[Message] = [{"type": "http.request", "body": b"{}", "more_body": False}]
    seen: list[Message] = []

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        seen.append(message)
        if message.get("body"):
            hung_up.set()

    async with serve(app) as address, open_relay() as relay:
        assert await call(relay, address, receive, send)
        await asyncio.wait_for(ended.wait(), 60)
    assert [message.get("body") for message in seen] == [None, b"data: 1\n\n"]


async def test_who_hangs_up_within_the_request_is_no_reason_to_doubt_the_engine() -> None:
    messages: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async with serve(echo) as address, open_relay() as relay:
        assert await call(relay, address, receive, send_nothing)


async def never() -> Message:
    raise AssertionError("the request is used up")


def ask_once() -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await asyncio.Event().wait()  # pyright: ignore[reportReturnType]

    return receive


async def send_nothing(message: Message) -> None:
    raise AssertionError(f"nothing has answered, and {message} was sent")


@pytest.mark.parametrize("target", [b"*", "/é".encode(), b"localhost:22"])
async def test_what_is_no_path_is_left_to_ray_serve(target: bytes) -> None:
    scope = {"type": "http", "method": "OPTIONS", "raw_path": target, "query_string": b"", "headers": []}
    async with open_relay() as relay:
        assert not await relay.pass_on("127.0.0.1:1", scope, never, send_nothing)


async def test_a_server_that_is_not_there_leaves_the_request_whole_and_is_left_out_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    async with open_relay() as relay:
        assert relay.choose([address]) == address
        assert not await call(relay, address, never, send_nothing)
        assert relay.choose([address]) is None
        assert relay.choose([address, "127.0.0.1:1"]) == "127.0.0.1:1"
        monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 61)
        assert relay.choose([address]) == address


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 2", b"SSH-2.0-OpenSSH_9.6\r\n"])
async def test_a_server_that_answers_nothing_that_can_be_read_is_lost(answer: bytes) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server, open_relay() as relay:
        with pytest.raises(LostEngineError):
            await call(relay, f"127.0.0.1:{server.sockets[0].getsockname()[1]}", ask_once(), send_nothing)


@pytest.mark.seconds
async def test_who_does_not_take_the_answer_gives_the_engine_s_place_back_and_who_is_slow_gets_it_whole() -> None:
    ended: list[str] = []
    part, num_parts = b"x" * 2**16, 512  # more than connections hold

    async def write(scope: Scope, receive: Receive, send: Send) -> None:
        async def write_parts() -> AsyncIterator[bytes]:
            for _ in range(num_parts):
                yield part

        await StreamingResponse(write_parts())(scope, receive, send)
        ended.append(scope["path"])

    relay = Relay(send_limit_s=1)

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        await relay.pass_on(engine, scope, receive, send)

    async with serve(write) as engine, serve(proxy) as address:
        host, _, port = address.partition(":")

        async def ask(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(host, int(port), limit=2**16)
            writer.write(f"GET /{path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
            return reader, writer

        _, held = await ask("held")
        reader, slow = await ask("slow")
        num_bytes = 0
        while got := await reader.read(2**20):
            num_bytes += len(got)
            await asyncio.sleep(0.001)
        assert num_bytes > num_parts * len(part)
        async with asyncio.timeout(60):
            while len(ended) < 2:
                await asyncio.sleep(0.01)
        held.close()
        slow.close()
    await relay.close()
    assert ended == ["/slow", "/held"]


async def test_half_an_answer_is_not_taken_for_a_whole_one() -> None:
    async def answer_half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        writer.close()

    seen: list[Message] = []

    async def send(message: Message) -> None:
        seen.append(message)

    server = await asyncio.start_server(answer_half, "127.0.0.1", 0)
    async with server, open_relay() as relay:
        with pytest.raises(Exception, match=r"(?i)payload|transfer"):
            await call(relay, f"127.0.0.1:{server.sockets[0].getsockname()[1]}", ask_once(), send)
    assert not [message for message in seen if message["type"] == "http.response.body" and not message["more_body"]]


@pytest.mark.seconds
async def test_the_server_with_the_fewest_requests_under_way_is_asked() -> None:
    names = ["one", "two", "three"]
    goes_on = asyncio.Event()

    def build(name: str) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await goes_on.wait()
            await Response(name)(scope, receive, send)

        return app

    async with contextlib.AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(serve(build(name))) for name in names]
        client = await stack.enter_async_context(open_client(await stack.enter_async_context(open_relay()), *addresses))
        asked = [asyncio.create_task(client.get("/")) for _ in range(6)]
        await asyncio.sleep(0)
        goes_on.set()
        assert sorted([(await one).text for one in asked]) == sorted(2 * names)
