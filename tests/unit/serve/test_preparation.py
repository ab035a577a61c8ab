"""Requests are made ready for the engine a few at a time."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from drag_ray.serve.ingress.queues import Preparation, end_turns_at

NEVER_S = 1000.0


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


def ask(preparation: Preparation, numbers: range, **scope: Any) -> list[asyncio.Task[None]]:
    scopes = [{"type": "http", "method": "POST", "number": number} | scope for number in numbers]
    return [asyncio.ensure_future(preparation(scope, receive, send)) for scope in scopes]  # pyright: ignore[reportArgumentType]


async def breathe() -> None:
    """Let everything that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_next_is_begun_when_an_answer_begins_and_in_the_order_of_their_coming() -> None:
    application = Application()
    asked = ask(Preparation(application, num_at_once=2, turn_s=NEVER_S), range(6))
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
    asked = ask(Preparation(application, num_at_once=1, turn_s=NEVER_S), range(6))
    application.ready[0].set()
    application.done[0].set()
    await asked[0]
    await breathe()
    assert application.begun == [0, 1]
    await cancel(asked)


async def test_who_hangs_up_gives_the_place_back_and_who_waits_for_one_has_none_to_give() -> None:
    application = Application()
    asked = ask(Preparation(application, num_at_once=1, turn_s=NEVER_S), range(4))
    await breathe()
    await cancel(asked[1:2])
    await breathe()
    assert application.begun == [0]
    await cancel(asked[:1])
    await breathe()
    assert application.begun == [0, 2]
    await cancel(asked)


async def test_a_failure_gives_the_place_back() -> None:
    begun: list[int] = []

    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["number"])
        raise ValueError("no")

    asked = ask(Preparation(fail, num_at_once=1, turn_s=NEVER_S), range(2))
    for task in asked:
        with pytest.raises(ValueError, match="no"):
            await task
    assert begun == [0, 1]


async def test_one_that_takes_long_holds_nobody_up_for_longer_than_a_turn() -> None:
    application = Application()
    asked = ask(Preparation(application, num_at_once=1, turn_s=0.01), range(2))
    async with asyncio.timeout(5):
        while application.begun != [0, 1]:
            await asyncio.sleep(0.005)
    await cancel(asked)


class Engine:
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
    engine = Engine()
    end_turns_at(engine)
    asked = ask(Preparation(engine.answer, num_at_once=1, turn_s=NEVER_S), range(4))
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
    preparation = Preparation(application, num_at_once=1, turn_s=NEVER_S)
    asked = ask(preparation, range(1)) + ask(preparation, range(1, 3), method="GET")
    await breathe()
    assert application.begun == [0, 1, 2]
    await cancel(asked)


async def cancel(asked: list[asyncio.Task[None]]) -> None:
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
