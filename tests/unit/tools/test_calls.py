"""Calls of tools: whatever one does costs its own turn alone."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable

import pytest

from drag_ray.errors import ToolError
from drag_ray.tools.calls import MAX_LATE, CallLimits, CallOutcome, ToolCaller
from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

LIMITS = CallLimits(timeout_s=5, max_chars=100)


class Weather(Arguments):
    """Where."""

    city: str = "Graz"


def build(run: Callable[[Weather, Workspace], object]) -> ToolCaller:
    return ToolCaller(Tool("weather", "The weather.", Weather, run))  # type: ignore[arg-type]


async def call(caller: ToolCaller, workspace: Workspace, arguments: str = "{}", limits: CallLimits = LIMITS) -> CallOutcome:
    return await caller.call(arguments, workspace, limits)


async def test_a_call_returns_what_the_tool_found_cut_and_cleaned(
    workspace: Workspace,
) -> None:
    caller = build(lambda arguments, _: Observation(f"Rain in {arguments.city}."))
    outcome = await call(caller, workspace, '{"city": "Wien", "unit": "C"}')
    assert (outcome.text, outcome.error) == ("Rain in Wien.", "")
    outcome = await call(build(lambda *_: Observation("é" * 50_000_000)), workspace)
    assert outcome.text == "é" * 100 + "\n[cut: the first 100 of 50,000,000 characters]"
    assert (await call(build(lambda *_: Observation("a\ud800\0b")), workspace)).text == "ab"


def refuse(*_: object) -> Observation:
    raise ToolError("no such city")


def fail(*_: object) -> Observation:
    raise ValueError("secret-key-123")


def leave(*_: object) -> Observation:
    sys.exit(3)


def recur(*_: object) -> Observation:
    return recur()


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (refuse, "no such city"),
        (fail, "weather failed (ValueError)"),
        (leave, "weather failed (SystemExit)"),
        (recur, "weather failed (RecursionError)"),
        (lambda *_: None, "weather failed (TypeError)"),
        (lambda *_: Observation(None), "weather failed (TypeError)"),  # type: ignore[arg-type]
    ],
)
async def test_an_error_is_told_to_the_policy_and_kept(workspace: Workspace, run: Callable[..., object], error: str) -> None:
    outcome = await call(build(run), workspace)
    assert (outcome.text, outcome.error) == (f"The call failed: {error}", error)


@pytest.mark.parametrize("arguments", ["[]", "{", '{"city": 3}', '{"city": null}'])
async def test_arguments_of_other_types_are_refused(workspace: Workspace, arguments: str) -> None:
    outcome = await call(build(lambda *_: Observation("")), workspace, arguments)
    assert outcome.error.startswith("weather: ")


async def test_a_tool_that_hangs_costs_its_own_turn(workspace: Workspace) -> None:
    release = threading.Event()
    caller = build(lambda *_: Observation(str(release.wait(60))))
    other = build(lambda *_: Observation("Sun."))
    short = CallLimits(timeout_s=0.2, max_chars=100)
    hanging, found = await asyncio.gather(call(caller, workspace, limits=short), call(other, workspace))
    assert hanging.error == "weather did not answer within 0.2 s"
    assert found.text == "Sun."
    release.set()


async def test_a_tool_that_goes_on_hanging_is_no_longer_called_until_its_calls_end(workspace: Workspace) -> None:
    release, started = threading.Event(), []

    def hang(*_: object) -> Observation:
        started.append(1)
        return Observation(str(release.wait(60)))

    caller, short = build(hang), CallLimits(timeout_s=0.2, max_chars=100)
    await asyncio.gather(*(call(caller, workspace, limits=short) for _ in range(MAX_LATE)))
    refused = await call(caller, workspace, limits=short)
    assert refused.error == f"weather does not answer: {MAX_LATE} earlier calls of it still run"
    assert len(started) == MAX_LATE
    release.set()
    deadline = time.monotonic() + 10
    while (found := await call(caller, workspace)).error and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert found.text == "True"
