"""Answers of Ray Serve's proxy by itself, in front of one that answers as it does, and the replicas that it knows to run."""

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from ray.serve import context
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from drag_ray.serve.ingress import proxy
from drag_ray.serve.ingress.proxy import EngineWatch, ProxyAnswers, RunningReplicas, build_middlewares, find_running_replicas


def ask(answer: Response, path: str = "/v1/chat/completions", num_engines: int = 1) -> Any:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(scope, receive, send)

    return TestClient(ProxyAnswers(serve, lambda: RunningReplicas(num_engines))).get(path)


@pytest.mark.parametrize(
    ("given", "status", "error_type"),
    [
        (429, 429, "RateLimitError"),
        (503, 503, "ServiceUnavailableError"),
        (500, 500, "InternalServerError"),
        (408, 408, "BadRequestError"),
        (404, 503, "ServiceUnavailableError"),  # there is one application, and it has all paths: it has not started
    ],
)
def test_what_ray_serve_refuses_is_said_with_the_error_object_of_openai(given: int, status: int, error_type: str) -> None:
    answer = ask(PlainTextResponse("a stack trace", given, {"retry-after": "7"}))
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (status, error_type, status)
    assert "stack" not in answer.text
    assert answer.headers["retry-after"] == "7"


def test_what_the_application_answers_is_left_as_it_is() -> None:
    for answer in (JSONResponse({"error": 1}, 404), PlainTextResponse("Success", 200), JSONResponse({}, 503)):
        got = ask(answer)
        assert (got.status_code, got.content) == (answer.status_code, answer.body)


def test_the_proxy_says_that_it_lives_and_shows_nothing_else_of_its_own() -> None:
    refusing = PlainTextResponse("no replicas", 503)
    assert ask(refusing, "/live").status_code == 200
    assert ask(PlainTextResponse("all applications"), "/-/routes").status_code == 404


def test_whether_the_proxy_takes_requests_is_said_to_its_own_machine_alone() -> None:
    answers = {
        (host, bool(find)): TestClient(ProxyAnswers(PlainTextResponse("success"), find), client=(host, 1)).get("/-/healthz")
        for host in ("127.0.0.1", "10.1.2.3")
        for find in (lambda: RunningReplicas(0), None)  # the proxy, and a replica
    }
    assert answers.pop(("127.0.0.1", True)).text == "success"
    assert [answer.status_code for answer in answers.values()] == [404, 404, 404]


def test_where_no_engine_runs_requests_are_told_to_come_back_and_the_proxy_lives() -> None:
    kept = PlainTextResponse("answered after a minute")
    answer = ask(kept, num_engines=0)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
    assert answer.json()["error"]["type"] == "ServiceUnavailableError"
    assert ask(kept, "/live", num_engines=0).status_code == 200
    [middleware] = build_middlewares()
    assert middleware.cls is ProxyAnswers


async def test_where_no_engine_runs_ray_serve_is_given_one_request_for_which_it_starts_one() -> None:
    kept: list[Scope] = []
    started = asyncio.Event()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        kept.append(scope)
        assert await receive() == {"type": "http.request", "body": b"", "more_body": False}
        await started.wait()
        await Response()(scope, receive, send)

    watched = ProxyAnswers(serve, lambda: RunningReplicas(0))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(watched), base_url="http://localhost") as client:
        assert (await client.get("/health")).status_code == 503  # a load balancer asks for ever
        await asyncio.sleep(0)
        assert not kept
        headers = {"Authorization": "Bearer key"}
        answers = [await client.post("/v1/chat/completions", content="{}", headers=headers) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [503, 503, 503]
        await asyncio.sleep(0.05)
        assert [(scope["method"], scope["path"], scope["headers"]) for scope in kept] == [("GET", "/health", [])]
        started.set()
        await asyncio.sleep(0.05)
        await client.get("/v1/models")
        await asyncio.sleep(0.05)
    assert len(kept) == 2


async def test_engines_are_counted_beside_requests_and_before_them_while_none_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counts = [1, 0, 0, 2]
    asked = 0

    def find() -> RunningReplicas:
        nonlocal asked
        asked += 1
        return RunningReplicas(counts[min(asked, len(counts)) - 1])

    watch = EngineWatch(find)
    assert [await watch.find() for _ in range(5)] == [RunningReplicas(1)] * 5  # the first has waited
    assert asked == 1
    monkeypatch.setattr(proxy, "_LOOK_EVERY_S", -1.0)
    assert await watch.find() == RunningReplicas(1)  # the look that finds none is beside this request
    await asyncio.sleep(0.05)
    assert await watch.find() == RunningReplicas(0)
    assert await watch.find() == RunningReplicas(2)
    assert [record.getMessage() for record in caplog.records] == [
        "no engine runs: requests get 503 until one does",
        "2 engine(s) run again",
    ]


async def test_engines_that_were_looked_up_long_ago_are_looked_up_before_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [RunningReplicas(1, ("127.0.0.1:1",)), RunningReplicas(1, ("127.0.0.1:2",))]
    watch = EngineWatch(lambda: found.pop(0))
    assert await watch.find() == RunningReplicas(1, ("127.0.0.1:1",))
    monkeypatch.setattr(proxy, "_LOOK_EVERY_S", -1.0)
    monkeypatch.setattr(proxy, "_TRUST_S", -1.0)
    assert await watch.find() == RunningReplicas(1, ("127.0.0.1:2",))


def test_after_an_engine_has_died_no_request_goes_on_unlooked_at() -> None:
    running = 1

    async def die(scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse({"error": "the engine has died"}, 503)(scope, receive, send)

    client = TestClient(ProxyAnswers(die, lambda: RunningReplicas(running)))
    assert client.get("/health").json() == {"error": "the engine has died"}
    running = 0
    assert client.get("/health").json()["error"]["message"].startswith("no engine is there to answer")


async def test_a_controller_that_is_away_keeps_no_request_back() -> None:
    def fail() -> RunningReplicas:
        raise RuntimeError("no controller")

    watch = EngineWatch(fail)
    assert [await watch.find(), await watch.find()] == [None, None]


def test_a_replica_that_listens_for_itself_shows_no_routes_of_its_own_and_looks_nothing_up() -> None:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("dropped", 429)(scope, receive, send)

    client = TestClient(ProxyAnswers(serve, find_engines=None))
    assert client.get("/-/routes").status_code == 404
    assert client.get("/v1/models").json()["error"]["code"] == 429


def describe(targets: dict[str, tuple[str, int]], states: dict[str, str]) -> dict[str, Any]:
    replicas = [{"actor_name": name, "state": state} for name, state in states.items()]
    groups = [
        {"protocol": "HTTP", "targets": [{"name": name, "ip": ip, "port": port} for name, (ip, port) in targets.items()]},
        {"protocol": "gRPC", "targets": [{"name": "one", "ip": "127.0.0.1", "port": 9}]},
    ]
    return {"applications": {"drag_ray": {"deployments": {"openai": {"replicas": replicas}}}}, "target_groups": groups}


@pytest.mark.parametrize(
    ("details", "found"),
    [
        (
            describe({"one": ("127.0.0.1", 30000), "two": ("::1", 30001)}, {"one": "RUNNING", "two": "RUNNING"}),
            RunningReplicas(2, ("127.0.0.1:30000", "[::1]:30001")),
        ),
        # One that starts, and one that ends, take no requests.
        (
            describe(
                {"one": ("10.0.0.1", 30000), "two": ("10.0.0.2", 1)}, {"one": "RUNNING", "two": "STOPPING", "new": "STARTING"}
            ),
            RunningReplicas(1, ("10.0.0.1:30000",)),
        ),
        # A controller that has come again asks the replicas that it finds.
        (describe({"one": ("10.0.0.1", 30000)}, {"one": "RECOVERING"}), RunningReplicas(1, ("10.0.0.1:30000",))),
        # None listens for itself: the targets are proxies.
        (describe({"SERVE_PROXY_ACTOR": ("127.0.0.1", 8000)}, {"one": "RUNNING"}), RunningReplicas(1)),
        (describe({"SERVE_PROXY_ACTOR": ("127.0.0.1", 8000)}, {"one": "STARTING"}), RunningReplicas(0)),
        ({"applications": {}, "target_groups": []}, None),
    ],
)
def test_running_replicas_are_found_with_their_own_addresses(
    details: dict[str, Any], found: RunningReplicas | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "_get_global_client", lambda: SimpleNamespace(get_serve_details=lambda: details))
    assert find_running_replicas() == found
