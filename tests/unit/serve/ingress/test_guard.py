"""The guard before vLLM's application, in front of one that answers everything."""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress import guard
from drag_ray.serve.ingress.guard import GENERATING_ROUTES, Guard, Rules
from drag_ray.serve.ingress.key import hash_key
from drag_ray.serve.ingress.limits import Limits

KEY = "a-key-for-this-test-alone"
LIMITS = Limits(ServeConfig(max_body_mib=1, max_tokens=100, max_sequences=8, max_question_chars=40))
CHAT = "/v1/chat/completions"
GIVEN_KEY = {"Authorization": f"Bearer {KEY}"}


async def answer_everything(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await JSONResponse({"path": scope["path"], "body": body.decode()})(scope, receive, send)


def make_client(
    key: str = "", client: str = "127.0.0.1", host: str = "localhost:8000", app: Any = answer_everything, **options: Any
) -> TestClient:
    guard = Guard(app, Rules([hash_key(key)] if key else [], LIMITS), **options)
    return TestClient(guard, base_url=f"http://{host}", client=(client, 1234), follow_redirects=False)


def test_what_is_allowed_arrives_as_it_was_sent() -> None:
    body = '{"model": "base",  "messages": [], "max_tokens": 5}'
    for _, path in GENERATING_ROUTES:
        assert make_client().post(path, content=body).json() == {"path": path, "body": body}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/invocations"),
        ("POST", "/adapters"),
        ("DELETE", "/adapters/tuned"),
        ("POST", "/v1/load_lora_adapter"),
        ("POST", "/v1/unload_lora_adapter"),
        ("GET", "/metrics"),
        ("GET", "/"),
        ("POST", f"{CHAT}/"),
        ("POST", f"/{CHAT}"),
        ("POST", "/v1/%2e/chat/completions"),
        ("POST", "/v1/x/%2e%2e/chat/completions"),
        ("POST", "/v1/Chat/Completions"),
        ("POST", f"{CHAT}%2f"),
        ("POST", f"{CHAT};a=b"),
        ("POST", f"{CHAT}%00"),
    ],
)
def test_what_is_not_listed_is_not_there_with_or_without_the_key(method: str, path: str) -> None:
    for client, headers in ((make_client(), {}), (make_client(KEY), GIVEN_KEY)):
        response = client.request(method, f"{client.base_url}{path}", headers=headers)
        assert response.status_code == 404
        if method != "HEAD":
            assert response.json()["error"]["type"] == "NotFoundError"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", CHAT, "POST"), ("OPTIONS", CHAT, "POST"), ("HEAD", "/health", "GET"), ("DELETE", "/mcp", "POST")],
)
def test_a_route_by_another_method_says_by_which(method: str, path: str, allowed: str) -> None:
    for client in (make_client(), make_client(KEY)):
        response = client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize(("choice", "status"), [(None, 400), ("auto", 400), ("required", 400), ("none", 200)])
def test_functions_whose_calls_nobody_would_read_are_refused_with_what_to_do(choice: str | None, status: int) -> None:
    body = {"tools": [{"type": "function", "function": {"name": "f"}}]} | ({"tool_choice": choice} if choice else {})
    for reads_calls, expected in ((False, status), (True, 200)):
        app = Guard(answer_everything, Rules([], LIMITS, reads_calls=reads_calls))
        response = TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)).post(CHAT, json=body)
        assert response.status_code == expected
        assert expected == 200 or "--serve.tool-call-parser" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "authorization", [None, "", KEY, "Bearer", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer é"]
)
def test_all_but_health_needs_the_key_where_there_is_one(authorization: str | None) -> None:
    client = make_client(KEY)
    headers = [] if authorization is None else [(b"Authorization", authorization.encode())]
    for method, path in [("GET", "/v1/models"), *GENERATING_ROUTES]:
        response = client.request(method, path, content="{}", headers=headers)
        assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
        assert response.json()["error"]["code"] == 401
    assert client.get("/health", headers=headers).status_code == 200


def test_with_the_key_it_matters_not_who_asks() -> None:
    client = make_client(KEY, client="192.0.2.7", host="search.example")
    assert client.get("/v1/models", headers=GIVEN_KEY | {"Origin": "http://search.example"}).status_code == 200
    assert client.post(CHAT, content="{}", headers={"Authorization": f"bearer  {KEY}"}).status_code == 200


@pytest.mark.parametrize(
    ("client", "host", "origin"),
    [
        ("192.0.2.7", "localhost:8000", None),
        ("testclient", "localhost:8000", None),
        ("127.0.0.1", "evil.example:8000", None),
        ("127.0.0.1", "127.0.0.1.evil.example", None),
        ("127.0.0.1", "localhost:8000", "http://evil.example"),
        ("127.0.0.1", "localhost:8000", "https://localhost.evil.example"),
        ("127.0.0.1", "localhost:8000", "null"),
        ("127.0.0.1", "localhost:8000", ""),
        ("127.0.0.1", "localhost:8000", "http://[::1"),
        ("127.0.0.1", "localhost:8000", "http://localhost:3000"),
        ("127.0.0.1", "localhost:8000", "http://localhost"),
        ("127.0.0.1", "localhost:8000", "https://localhost:8000"),
        ("127.0.0.1", "localhost:8000", "http://127.0.0.1:8000"),
        ("127.0.0.1", "evil.example:8000", "http://evil.example:8000"),
    ],
)
def test_without_a_key_other_machines_and_web_pages_are_refused(client: str, host: str, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin}
    for method, path in [("GET", "/v1/models"), *GENERATING_ROUTES]:
        response = make_client(client=client, host=host).request(method, path, content="{}", headers=headers)
        assert response.status_code == 403
        assert "no key" in response.json()["error"]["message"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000"])
@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_without_a_key_this_machine_is_answered(client: str, host: str) -> None:
    assert make_client(client=client, host=host).get("/v1/models").status_code == 200
    own = make_client(client=client, host=host).get("/v1/models", headers={"Origin": f"http://{host}"})
    assert own.status_code == 200


@pytest.mark.parametrize("length", [None, b"2", b"1000000000"])
def test_a_request_that_is_too_large_is_read_no_further_whatever_it_says_of_its_length(length: bytes | None) -> None:
    num_read = 0

    async def receive() -> Message:
        nonlocal num_read
        num_read += 1
        return {"type": "http.request", "body": b" " * 2**18, "more_body": True}

    status, error = ask([(b"content-length", length)] if length else [], receive)
    assert (status, num_read) == (413, 0 if length == b"1000000000" else 5)
    assert "serve.max_body_mib, 1 MiB" in error["message"]
    assert make_client().post(CHAT, content=b"{}" + b" " * (2**20 - 2)).status_code == 200


def test_a_request_whose_body_does_not_come_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_BODY_PART_S", 0.01)
    messages: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Message:
        return messages.pop() if messages else await asyncio.get_running_loop().create_future()

    status, error = ask([], receive)
    assert (status, error["message"]) == (408, "nothing of the request's body came for 0.01 s.")


def test_nothing_of_a_request_is_read_before_its_key() -> None:
    async def receive() -> Message:
        raise AssertionError("the body was asked for")

    assert ask([], receive, KEY)[0] == 401


def ask(headers: list[tuple[bytes, bytes]], receive: Receive, key: str = "") -> tuple[int, dict[str, Any]]:
    """The status and the error of a request whose body comes from `receive`."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": CHAT,
        "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"localhost"), *headers],
    }
    guard = Guard(answer_everything, Rules([hash_key(key)] if key else [], LIMITS))
    asyncio.run(guard(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])["error"]


def test_limits_are_kept_on_every_route_that_generates() -> None:
    for _, path in GENERATING_ROUTES:
        for body in ({"n": 9}, {"max_tokens": 101}, {"prompt": ["a"] * 9}):
            response = make_client().post(path, json=body)
            assert (response.status_code, response.json()["error"]["type"]) == (400, "BadRequestError")


def test_a_request_uses_its_model_until_its_answer_is_over() -> None:
    events: list[str] = []

    @contextmanager
    def use_model(name: str) -> Generator[None]:
        events.append(f"begin {name}")
        yield
        events.append(f"end {name}")

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        async def parts() -> AsyncGenerator[str]:
            for number in range(2):
                events.append(f"part {number}")
                yield "part"

        await StreamingResponse(parts())(scope, receive, send)

    make_client(app=stream, use_model=use_model).post(CHAT, json={"model": "tuned"})
    assert events == ["begin tuned", "part 0", "part 1", "end tuned"]


def test_web_sockets_are_closed() -> None:
    for path in ("/v1/realtime", CHAT, "/health"):
        with pytest.raises(WebSocketDisconnect), make_client().websocket_connect(path):
            pass


async def die_with_an_answer(scope: Scope, receive: Receive, send: Send) -> None:
    await Request(scope, receive).body()
    await JSONResponse({"error": "EngineDeadError"}, 500)(scope, receive, send)


async def die_with_an_exception(scope: Scope, receive: Receive, send: Send) -> None:
    await Request(scope, receive).body()
    raise RuntimeError("EngineDeadError")


async def die_with_both(scope: Scope, receive: Receive, send: Send) -> None:
    await die_with_an_answer(scope, receive, send)
    raise RuntimeError("EngineDeadError")


@pytest.mark.parametrize("die", [die_with_an_answer, die_with_an_exception, die_with_both])
def test_an_engine_that_has_died_is_told_with_the_seconds_to_wait(die: Any, caplog: pytest.LogCaptureFixture) -> None:
    num_answered = 0

    def has_died() -> bool:
        return num_answered > 0

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal num_answered
        num_answered += 1
        await die(scope, receive, send)

    client = make_client(app=answer, has_died=has_died)
    for _ in range(2):  # a request that it answered when it died, and one that comes later
        refused = client.post(CHAT, content="{}")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        assert refused.json()["error"]["message"].startswith("the engine has died; another one is starting.")
    assert num_answered == 1
    assert [record.getMessage()[:19] for record in caplog.records] == ["the engine has died"]


def test_what_fails_while_the_engine_lives_is_left_as_it_is() -> None:
    answer = make_client(app=die_with_an_answer).post(CHAT, content="{}")
    assert (answer.status_code, answer.json()) == (500, {"error": "EngineDeadError"})
    with pytest.raises(RuntimeError, match="EngineDeadError"):
        make_client(app=die_with_an_exception).post(CHAT, content="{}")


@pytest.mark.parametrize("model", [None, 5, ["a"]])
def test_a_model_that_is_no_name_is_for_the_application_to_refuse(model: Any) -> None:
    assert make_client().post(CHAT, json={"model": model}).status_code == 200
