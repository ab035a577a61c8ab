"""Tools that actors run: what a call comes to, whatever becomes of the actor. The actors here are objects of this process."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError
from small_index import write_index

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.engine.config import EngineConfig
from drag_ray.errors import ConfigError
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.tool_hosts import HostedTool, ToolHost, host_tools
from drag_ray.search.searcher import Searcher
from drag_ray.tools.calls import CallLimits, CallOutcome
from drag_ray.tools.images.rollout_images import RolloutImages
from drag_ray.tools.workspace import Workspace
from drag_ray.types import Page

LIMITS = CallLimits(timeout_s=5, max_chars=100)


@pytest.fixture
def options(tmp_path: Path) -> WorkerOptions:
    write_index(tmp_path, [Page("a.pdf", 1, 1, "The rotor turns at 340 rpm.")], [])
    return WorkerOptions(
        run_dir=tmp_path / "run",
        index_dir=tmp_path / "search_index",
        agent=AgentConfig(protocol="tools", tools=("search", "grep", "read_page"), max_iterations=3),
        engine=EngineConfig(),
        policies={"": Policy("scripted")},
        concurrent_rollouts=1,
        flush_s=0,
    )


@pytest.fixture
def workspace(options: WorkerOptions) -> Workspace:
    return Workspace(Searcher(options.index_dir))


def build_host(call: Callable[..., Coroutine[Any, Any, CallOutcome]]) -> Any:
    """An actor, whose calls go on when nobody waits for them any more."""
    return SimpleNamespace(call=SimpleNamespace(remote=lambda *given: asyncio.shield(asyncio.create_task(call(*given)))))


async def test_a_host_calls_its_tool_on_the_collection_and_no_other(options: WorkerOptions, workspace: Workspace) -> None:
    host = ToolHost(options, "grep")
    assert await host.open() == ["grep"]
    caller = HostedTool("grep", [build_host(host.call)])
    outcome = await caller.call('{"file": "a.pdf", "text": "340"}', workspace, LIMITS)
    assert "a.pdf#1: The rotor turns at 340 rpm." in outcome.text
    assert (outcome.error, outcome.seconds > 0) == ("", True)
    failed = await caller.call('{"file": "b.pdf", "text": "340"}', workspace, LIMITS)
    assert failed.text == f"The call failed: {failed.error}"
    assert failed.error == "there is no file 'b.pdf'; give the name as a search shows it"


async def test_a_process_in_which_calls_hang_is_ended(
    options: WorkerOptions, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    host, hasty = ToolHost(options, "grep"), CallLimits(timeout_s=0.02, max_chars=100)
    await host.open()
    monkeypatch.setattr(host._pages, "read_file", lambda file: go_on.wait() and iter(()))
    monkeypatch.setattr(os, "_exit", lambda status: exits.append(status))
    exits: list[int] = []
    for _ in range(4):
        late = await host.call("grep", '{"file": "a.pdf", "text": "340"}', workspace.images, hasty)
        assert (late.error, exits) == ("grep did not answer within 0.02 s", [])
    await host.call("grep", '{"file": "a.pdf", "text": "340"}', workspace.images, hasty)
    assert exits == [1]
    go_on.set()


async def test_an_actor_that_has_ended_costs_the_call(workspace: Workspace) -> None:
    async def die(*_: Any) -> CallOutcome:
        raise ActorDiedError

    def refuse(*_: Any) -> Any:
        raise ActorDiedError

    for host in (build_host(die), SimpleNamespace(call=SimpleNamespace(remote=refuse))):
        caller = HostedTool("ocr", [host])
        for _ in range(2):  # Ray starts another in its place
            outcome = await caller.call("{}", workspace, LIMITS)
            assert outcome.text == "The call failed: ocr failed: its process has ended"


async def test_calls_go_to_an_actor_that_is_free_and_wait_in_their_own_time(workspace: Workspace) -> None:
    under_way = [0, 0]
    most = [0, 0]
    go_on = asyncio.Event()

    def build(place: int) -> Any:
        async def call(name: str, arguments: str, images: RolloutImages, limits: CallLimits) -> CallOutcome:
            under_way[place] += 1
            most[place] = max(most[place], under_way[place])
            await go_on.wait()
            under_way[place] -= 1
            return CallOutcome(name)

        return build_host(call)

    alone = HostedTool("ocr", [build(0)])
    abandoned = await alone.call("{}", workspace, CallLimits(timeout_s=0.02, max_chars=100))
    assert abandoned.error == "ocr did not answer within 0.02 s"
    next_one = asyncio.create_task(alone.call("{}", workspace, LIMITS))
    await asyncio.sleep(0.02)
    assert under_way == [1, 0]  # the actor is still at the first one
    go_on.set()
    assert (await next_one).text == "ocr"
    go_on.clear()
    caller = HostedTool("ocr", [build(0), build(1)])
    calls = [asyncio.create_task(caller.call("{}", workspace, LIMITS)) for _ in range(4)]
    await asyncio.sleep(0)
    late = await caller.call("{}", workspace, CallLimits(timeout_s=0.05, max_chars=100))
    assert late.error == "ocr did not answer within 0.05 s"
    assert under_way == [1, 1]
    go_on.set()
    assert [outcome.text for outcome in await asyncio.gather(*calls)] == ["ocr"] * 4
    assert most == [1, 1]


@pytest.mark.parametrize("tool", ["search", "layout_parsing"])
def test_only_tools_that_the_agent_calls_have_actors(options: WorkerOptions, tool: str) -> None:
    settings = RolloutConfig.model_validate({"tool_hosts": [{"tool": tool}]})
    with pytest.raises(ConfigError, match=rf"rollout.tool_hosts: the agent has no {tool} to call"), host_tools(options, settings):
        pass


def test_a_tool_has_one_line() -> None:
    with pytest.raises(ValueError, match="tool_hosts has grep twice"):
        RolloutConfig.model_validate({"tool_hosts": [{"tool": "grep"}, {"tool": "grep"}]})
