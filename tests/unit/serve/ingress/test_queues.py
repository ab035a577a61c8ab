"""The queues before an engine: how many requests it is given, how many wait, and for how long, and who is made ready when."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from drag_ray.errors import ServeError
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress import proxy
from drag_ray.serve.ingress.guard import GENERATING_ROUTES, SEARCHING_ROUTES, Guard, Rules
from drag_ray.serve.ingress.limits import Limits, RefusalError
from drag_ray.serve.ingress.proxy import ProxyAnswers, RunningReplicas
from drag_ray.serve.ingress.queues import Admission, Preparation, end_turns_at

LIMITS = Limits(ServeConfig(max_body_mib=1, max_tokens=100, max_sequences=8, max_question_chars=40))
ENGINE_PATHS = sorted(path for _, path in GENERATING_ROUTES | SEARCHING_ROUTES)
LONG_S = 600.0


class Engine:
    """Answers what comes in when it is let go on, and health at once."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.goes_on = asyncio.Event()
        self.has_died = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            self.taken.append((await Request(scope, receive).json()).get("name", ""))
            await self.goes_on.wait()
        await JSONResponse({})(scope, receive, send)

    async def wait_for(self, num_taken: int) -> None:
        while len(self.taken) < num_taken:
            await asyncio.sleep(0)


@asynccontextmanager
async def listen(engine: Engine, admission: Admission) -> AsyncGenerator[httpx2.AsyncClient]:
    guard = Guard(engine, Rules([], LIMITS), has_died=lambda: engine.has_died, admission=admission)
    transport = httpx2.ASGITransport(guard, client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def ask(client: httpx2.AsyncClient, name: str, path: str = "/v1/search") -> asyncio.Task[Any]:
    return asyncio.create_task(client.post(path, json={"name": name}))


async def wait_until_queued(admission: Admission, num: int) -> None:
    while admission._num_queued != num:  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0)


async def test_so_many_are_answered_so_many_wait_in_turn_and_the_others_are_told_to_come_back() -> None:
    engine, admission = Engine(), Admission(2, 3, LONG_S)
    async with listen(engine, admission) as client:
        first = [ask(client, name) for name in "ab"]
        await engine.wait_for(2)
        waiting = []
        for number, name in enumerate("cde"):
            waiting.append(ask(client, name))
            await wait_until_queued(admission, number + 1)
        refused = await ask(client, "f")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert refused.json()["error"]["type"] == "RateLimitError"
        assert "serve.max_queued_requests" in refused.json()["error"]["message"]
        assert sorted(engine.taken) == ["a", "b"]
        engine.goes_on.set()
        assert [answer.status_code for answer in await asyncio.gather(*first, *waiting)] == [200] * 5
        assert engine.taken[2:] == ["c", "d", "e"]


@pytest.mark.parametrize("path", ENGINE_PATHS)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_who_waits_too_long_is_told_to_come_back_on_every_route_and_health_waits_for_nothing(
    path: str, is_stream: bool
) -> None:
    engine, admission = Engine(), Admission(1, 8, 0.01)
    async with listen(engine, admission) as client:
        first = ask(client, "first")
        await engine.wait_for(1)
        refused = await client.post(path, json={"name": "second", "stream": is_stream})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        error = refused.json()["error"]
        assert (error["type"], error["code"]) == ("ServiceUnavailableError", 503)
        assert "serve.max_wait_s" in error["message"]
        for open_path in ("/health", "/v1/models"):
            assert (await client.get(open_path)).status_code == 200
        engine.goes_on.set()
        assert (await first).status_code == 200
        assert (await ask(client, "third", path)).status_code == 200  # who gave up holds no place
        assert engine.taken == ["first", "third"]


async def test_who_waits_for_an_engine_that_dies_is_not_given_to_it() -> None:
    engine, admission = Engine(), Admission(1, 8, LONG_S)
    async with listen(engine, admission) as client:
        first = ask(client, "first")
        waiting = [ask(client, "waiting") for _ in range(4)]
        await wait_until_queued(admission, 4)
        engine.has_died = True
        first.cancel()
        answers = [await task for task in waiting]
        assert {(answer.status_code, answer.headers["retry-after"]) for answer in answers} == {(503, "30")}
        assert engine.taken == ["first"]


async def test_no_place_is_lost_however_requests_end() -> None:
    rng, admission = random.Random(0), Admission(3, 5, 0.002)

    async def answer() -> None:
        async with admission.admit():
            await asyncio.sleep(rng.choice((0, 0.001, 0.004)))
            if rng.random() < 0.3:
                raise ServeError("the engine")

    async def be_asked() -> None:
        task = asyncio.create_task(answer())
        await asyncio.sleep(rng.choice((0, 0.001, 0.003)))
        if rng.random() < 0.4:
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or isinstance(task.exception(), ServeError | None)

    await asyncio.gather(*(be_asked() for _ in range(300)))
    async with admission.admit(), admission.admit(), admission.admit():
        with pytest.raises(RefusalError) as refusal:
            async with admission.admit():
                pass
    assert refusal.value.status == 503


async def test_an_engine_that_is_busy_is_not_taken_for_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "_LOOK_EVERY_S", 1e9)
    num_looks = 0

    def find_engines() -> RunningReplicas:
        nonlocal num_looks
        num_looks += 1
        return RunningReplicas(1)

    guard = Guard(Engine(), Rules([], LIMITS), admission=Admission(1, 8, 0.001))
    transport = httpx2.ASGITransport(ProxyAnswers(guard, find_engines), client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        first = ask(client, "first")
        statuses = [(await ask(client, "next")).status_code for _ in range(5)]
        first.cancel()
    assert (statuses, num_looks) == ([503] * 5, 0)
    died = ProxyAnswers(PlainTextResponse("no replica", 503), find_engines)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(died), base_url="http://localhost") as client:
        for _ in range(5):
            await client.get("/health")
    assert num_looks > 0


class Application:
    """Begins an answer when it is told to, and ends it when it is told to."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ready = [asyncio.Event() for _ in range(6)]
        self.done = [asyncio.Event() for _ in range(6)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        number = scope["number"]
        self.begun.append(number)
        await self.ready[number].wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await self.done[number].wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def receive() -> Message:
    raise AssertionError("nobody asks for the request")


async def send(message: Message) -> None:
    pass


def prepare(preparation: Preparation, numbers: range, **scope: Any) -> list[asyncio.Task[None]]:
    scopes = [{"type": "http", "method": "POST", "number": number} | scope for number in numbers]
    return [asyncio.ensure_future(preparation(scope, receive, send)) for scope in scopes]  # pyright: ignore[reportArgumentType]


async def breathe() -> None:
    """Let everything that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_next_is_begun_when_an_answer_begins_and_in_the_order_of_their_coming() -> None:
    application = Application()
    asked = prepare(Preparation(application, num_at_once=2, turn_s=LONG_S), range(6))
    await breathe()
    assert application.begun == [0, 1]
    application.ready[1].set()
    await breathe()
    assert application.begun == [0, 1, 2]
    application.ready[0].set()
    application.ready[2].set()
    await breathe()
    assert application.begun == [0, 1, 2, 3, 4]  # while none of the answers has ended
    for event in (*application.ready, *application.done):
        event.set()
    await asyncio.gather(*asked)
    assert application.begun == [0, 1, 2, 3, 4, 5]


async def test_an_answer_gives_its_place_back_once() -> None:
    application = Application()
    asked = prepare(Preparation(application, num_at_once=1, turn_s=LONG_S), range(6))
    application.ready[0].set()
    application.done[0].set()
    await asked[0]
    await breathe()
    assert application.begun == [0, 1]
    await cancel(asked)


async def test_who_hangs_up_gives_the_place_back_and_who_waits_for_one_has_none_to_give() -> None:
    application = Application()
    asked = prepare(Preparation(application, num_at_once=1, turn_s=LONG_S), range(4))
    await breathe()
    await cancel(asked[1:2])
    await breathe()
    assert application.begun == [0]
    await cancel(asked[:1])
    await breathe()
    assert application.begun == [0, 2]
    await cancel(asked)


async def test_one_that_takes_long_holds_nobody_up_for_longer_than_a_turn() -> None:
    application = Application()
    asked = prepare(Preparation(application, num_at_once=1, turn_s=0.01), range(2))
    async with asyncio.timeout(5):
        while application.begun != [0, 1]:
            await asyncio.sleep(0.005)
    await cancel(asked)


class TakingEngine:
    """Takes a request when it is told to, in a task of its own if it is to."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.taken: list[int] = []
        self.takes = [asyncio.Event() for _ in range(4)]

    async def add_request(self, number: int) -> str:
        await self.takes[number].wait()
        self.taken.append(number)
        return f"request {number}"

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        number = scope["number"]
        self.begun.append(number)
        assert await asyncio.create_task(self.add_request(number)) == f"request {number}"
        await asyncio.Event().wait()


async def test_the_next_is_begun_when_the_engine_has_one_whose_answer_comes_as_a_whole() -> None:
    engine = TakingEngine()
    end_turns_at(engine)
    asked = prepare(Preparation(engine.answer, num_at_once=1, turn_s=LONG_S), range(4))
    await breathe()
    assert engine.begun == [0]
    engine.takes[0].set()
    await breathe()
    assert (engine.taken, engine.begun) == ([0], [0, 1])
    engine.takes[2].set()
    engine.takes[1].set()
    await breathe()
    assert (engine.taken, engine.begun) == ([0, 1, 2], [0, 1, 2, 3])
    await cancel(asked)


async def test_what_asks_the_engine_for_nothing_waits_for_nobody() -> None:
    application = Application()
    preparation = Preparation(application, num_at_once=1, turn_s=LONG_S)
    asked = prepare(preparation, range(1)) + prepare(preparation, range(1, 3), method="GET")
    await breathe()
    assert application.begun == [0, 1, 2]
    await cancel(asked)


async def cancel(asked: list[asyncio.Task[None]]) -> None:
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
