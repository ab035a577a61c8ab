"""Rollouts that call tools: their turns, their observations, and how they end; also behind an endpoint."""

import json
from pathlib import Path
from typing import Any

import pytest
from chat_server import Answer, serve_chat
from rollout_cases import QUESTION, build_rollouts, roll_out, script
from scripted_engine import ScriptedEngine

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.task import RolloutTask
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.endpoints.endpoint import build_endpoint_engine
from drag_ray.tools.config import McpServerConfig, VisitConfig, WebSearchConfig
from drag_ray.types import ActionKind, Evidence, StopReason, Trajectory

PROTOCOL = get_protocol("tools")
SEARCH = PROTOCOL.render_search("rotor")
READ = render_call("read_page", {"file": "b.pdf", "page": 2})
GREP = render_call("grep", {"file": "b.pdf", "text": "340"})
BROKEN = render_call("read_page", {"file": "b.pdf", "page": 99})
ANSWER = PROTOCOL.render_answer("340 rpm")


def call_tools(replies: tuple[str, ...], environment: SearchEnvironment, **options: object) -> tuple[Trajectory, ScriptedEngine]:
    """A rollout with the protocol of functions, and the engine that it asked."""
    engine = ScriptedEngine(script(*replies))
    agent = {"protocol": "tools", "tools": ("search", "read_page", "grep"), "max_iterations": 8, **options}
    return roll_out(engine, environment, **agent), engine


def test_calls_are_turns_with_their_tool_arguments_and_time(environment: SearchEnvironment) -> None:
    trajectory, _ = call_tools((SEARCH, "<think>Which?</think>" + READ, GREP, ANSWER), environment)
    assert [turn.action.value for turn in trajectory.turns] == ["search", "tool", "tool", "answer"]
    _, read, found, _ = trajectory.turns
    assert (read.call.tool, json.loads(read.call.arguments), read.reasoning) == (
        "read_page",
        {"file": "b.pdf", "page": 2},
        "Which?",
    )
    assert (read.call.error, found.call.tool) == ("", "grep")
    assert read.call.duration_s > 0
    assert (read.ranking.hits, read.ranking.rank_score) == ((), 0.0)
    messages = json.loads(trajectory.messages)
    assert messages[5] == {"role": "tool", "content": "b.pdf#2 of 2\nrotor speed limit is 340 rpm in flight on the whole"}
    assert messages[7]["content"].startswith("1 line with '340' in b.pdf")
    assert trajectory.stop_reason is StopReason.ANSWER


def test_the_functions_that_were_shown_are_kept_with_the_trajectory(environment: SearchEnvironment) -> None:
    trajectory, engine = call_tools((ANSWER,), environment)
    names = [function["function"]["name"] for function in json.loads(trajectory.tools)]
    assert names == ["search_documents", "read_page", "grep", "provide_answer"]
    assert json.dumps(engine.requests[0].tools) == trajectory.tools
    told = " exactly one function: search_documents, read_page, grep or provide_answer."
    assert told in engine.requests[0].messages[0]["content"]
    [row] = schemas.to_table([trajectory], schemas.TRAJECTORIES).to_pylist()
    assert schemas.to_trajectory(row).tools == trajectory.tools


def test_a_failed_call_is_a_fact_of_its_turn_and_errors_in_a_row_end_the_rollout(environment: SearchEnvironment) -> None:
    trajectory, _ = call_tools((BROKEN, READ, ANSWER), environment)
    assert [bool(turn.call.error) for turn in trajectory.turns] == [True, False, False]
    assert json.loads(trajectory.messages)[3]["content"] == f"The call failed: {trajectory.turns[0].call.error}"
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.ANSWER, "")
    replies = (BROKEN, BROKEN, READ, BROKEN, BROKEN, BROKEN, ANSWER)
    trajectory, _ = call_tools(replies, environment)
    assert (trajectory.stop_reason, len(trajectory.turns), trajectory.error) == (StopReason.TOOL_ERRORS, 6, "")
    trajectory, _ = call_tools(replies, environment, max_tool_errors=0)
    assert (trajectory.stop_reason, len(trajectory.turns)) == (StopReason.ANSWER, 7)


def test_observations_are_cut_and_a_tool_that_the_agent_does_not_have_is_no_function(environment: SearchEnvironment) -> None:
    long = render_call("grep", {"file": "b.pdf", "text": "z" * 190})
    trajectory, _ = call_tools((long, ANSWER), environment, observation_chars=100)
    assert "[cut: the first 100 of" in json.loads(trajectory.messages)[3]["content"]
    trajectory, _ = call_tools((GREP, ANSWER), environment, tools=("search",))
    assert trajectory.turns[0].action is ActionKind.INVALID
    assert "there is no function 'grep'" in json.loads(trajectory.messages)[3]["content"]


@pytest.mark.parametrize(
    "arguments", ['{"file": ' + "[" * 900 + "]" * 900 + "}", '{"file": NaN}', '{"file": "\\ud800", "text": "x"}']
)
def test_hostile_arguments_cost_their_turn_alone(environment: SearchEnvironment, arguments: str) -> None:
    call = f'<tool_call>{{"name": "grep", "arguments": {arguments}}}</tool_call>'
    trajectory, _ = call_tools((call, ANSWER), environment)
    assert (trajectory.error, trajectory.stop_reason) == ("", StopReason.ANSWER)
    assert trajectory.turns[0].call.error or trajectory.turns[0].action is ActionKind.INVALID
    assert schemas.to_table([trajectory], schemas.TRAJECTORIES).num_rows == 1


TOOLS = ("search", "read_page", "grep")
REPLIES = (
    PROTOCOL.render_search("rotor"),
    "It is in b.pdf.\n" + render_call("grep", {"file": "b.pdf", "text": "340"}),
    render_call("read_page", {"file": "b.pdf", "page": 99}),
    PROTOCOL.render_answer("340 rpm", (Evidence("b.pdf", 2),)),
)


def call(body: dict[str, Any], number: int) -> Answer:
    """The reply of a turn, as an endpoint has it: without the string that ended it."""
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    return Answer(REPLIES[turn].removesuffix("</tool_call>"))


@pytest.mark.seconds
async def test_an_endpoint_calls_as_a_local_model_and_is_told_in_words(environment: SearchEnvironment, tmp_path: Path) -> None:
    with serve_chat(call) as served:
        config = EngineConfig.model_validate({"backend": "openai", "model": "m", "endpoint": {"address": served.address}})
        engine = build_endpoint_engine(tmp_path / "spending.jsonl", config, None, ())
        rollouts = build_rollouts(engine, environment, protocol="tools", tools=TOOLS, max_iterations=6)
        trajectory = await rollouts.run(RolloutTask(QUESTION, 0, "default", 7))
        await engine.close()
    assert [turn.action.value for turn in trajectory.turns] == ["search", "tool", "tool", "answer"]
    assert [(turn.call.tool, bool(turn.call.error)) for turn in trajectory.turns[1:3]] == [("grep", False), ("read_page", True)]
    assert [turn.raw_text for turn in trajectory.turns] == list(REPLIES)
    assert (trajectory.stop_reason, trajectory.final_answer.text, trajectory.error) == (StopReason.ANSWER, "340 rpm", "")
    # The record is that of any model: what a student's own template shows.
    names = [function["function"]["name"] for function in json.loads(trajectory.tools)]
    assert names == ["search_documents", "read_page", "grep", "provide_answer"]
    assert [message["role"] for message in json.loads(trajectory.messages)[2:5]] == ["assistant", "tool", "assistant"]
    assert "<tools>" not in json.loads(trajectory.messages)[0]["content"]

    sent = served.asked[-1]
    assert not sent.keys() & {"tools", "tool_choice"}
    assert [message["role"] for message in sent["messages"]] == ["system", "user", *["assistant", "user"] * 3]
    assert all(json.dumps(name) in sent["messages"][0]["content"] for name in names)
    told = [message["content"] for message in sent["messages"][3::2]]
    assert all(text.startswith("<tool_response>\n") and text.endswith("\n</tool_response>") for text in told)
    assert "1 line with '340' in b.pdf" in told[1]
    assert "The call failed: no page 99" in told[2]


def test_options_of_tools_that_an_agent_lacks_make_no_other_agent() -> None:
    server = McpServerConfig(name="pages", command=("pages",))
    visit, web_search = VisitConfig(max_mib=1), WebSearchConfig(key_variable="SEARCH_KEY")
    unused = AgentConfig(visit=visit, web_search=web_search, mcp_servers=(server,)).model_dump(mode="json")
    assert unused == AgentConfig().model_dump(mode="json")
    asked = {"protocol": "tools", "max_iterations": 2, "tools": ("search", "visit", "pages"), "mcp_servers": (server,)}
    used = AgentConfig.model_validate({**asked, "visit": visit, "web_search": web_search}).model_dump()
    assert used == AgentConfig.model_validate(asked).model_dump() | {"visit": visit.model_dump()}
