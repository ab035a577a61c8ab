"""Rollouts that call tools: their turns, their observations, and how they end."""

import json

import pytest
from rollout_cases import QUESTION, script

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.engine.scripted import ScriptedEngine
from drag_ray.search.searcher import Searcher
from drag_ray.types import ActionKind, StopReason, Trajectory

PROTOCOL = get_protocol("tools")
SEARCH = PROTOCOL.render_search("rotor")
READ = render_call("read_page", {"file": "b.pdf", "page": 2})
GREP = render_call("grep", {"file": "b.pdf", "text": "340"})
BROKEN = render_call("read_page", {"file": "b.pdf", "page": 99})
ANSWER = PROTOCOL.render_answer("340 rpm")


async def roll_out(engine: ScriptedEngine, environment: SearchEnvironment, **options: object) -> Trajectory:
    tools = {"protocol": "tools", "tools": ("search", "read_page", "grep"), "max_iterations": 8, "top_k": 2}
    config = AgentConfig(**{"query_mode": "rewrite", **tools, **options})  # type: ignore[arg-type]
    index = environment._index
    assert isinstance(index, Searcher)
    rollouts = Rollouts(config, Policy("model"), engine, environment, "index", pages=index)
    return await rollouts.run(RolloutTask(QUESTION, 0, "default", 7))


async def test_calls_are_turns_with_their_tool_arguments_and_time(environment: SearchEnvironment) -> None:
    engine = ScriptedEngine(script(SEARCH, "<think>Which?</think>" + READ, GREP, ANSWER))
    trajectory = await roll_out(engine, environment)
    assert [turn.action for turn in trajectory.turns] == [
        *(ActionKind.SEARCH, ActionKind.TOOL, ActionKind.TOOL, ActionKind.ANSWER),
    ]
    _, read, found, _ = trajectory.turns
    assert (read.tool, json.loads(read.arguments), read.reasoning) == ("read_page", {"file": "b.pdf", "page": 2}, "Which?")
    assert (read.tool_error, found.tool) == ("", "grep")
    assert read.tool_s > 0
    assert (read.hits, read.rank_score) == ((), 0.0)
    messages = json.loads(trajectory.messages)
    assert messages[5] == {"role": "tool", "content": "b.pdf#2 of 2\nrotor speed limit is 340 rpm in flight on the whole"}
    assert messages[7]["content"].startswith("1 line with '340' in b.pdf")
    assert trajectory.stop_reason is StopReason.ANSWER


async def test_the_functions_that_were_shown_are_kept_with_the_trajectory(environment: SearchEnvironment) -> None:
    engine = ScriptedEngine(script(ANSWER))
    trajectory = await roll_out(engine, environment)
    names = [function["function"]["name"] for function in json.loads(trajectory.tools)]
    assert names == ["search_documents", "read_page", "grep", "provide_answer"]
    assert json.dumps(engine.requests[0].tools) == trajectory.tools
    told = "Call exactly one function: search_documents, read_page, grep or provide_answer."
    assert told.removeprefix("Call") in engine.requests[0].messages[0]["content"]
    [row] = schemas.to_table([trajectory], schemas.TRAJECTORIES).to_pylist()
    assert schemas.to_trajectory(row).tools == trajectory.tools


async def test_a_failed_call_is_told_and_is_a_fact_of_its_turn(environment: SearchEnvironment) -> None:
    trajectory = await roll_out(ScriptedEngine(script(BROKEN, READ, ANSWER)), environment)
    assert [bool(turn.tool_error) for turn in trajectory.turns] == [True, False, False]
    assert json.loads(trajectory.messages)[3]["content"] == f"The call failed: {trajectory.turns[0].tool_error}"
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.ANSWER, "")


async def test_errors_in_a_row_end_the_rollout_and_other_turns_begin_the_count_anew(environment: SearchEnvironment) -> None:
    replies = (BROKEN, BROKEN, READ, BROKEN, BROKEN, BROKEN, ANSWER)
    trajectory = await roll_out(ScriptedEngine(script(*replies)), environment)
    assert (trajectory.stop_reason, len(trajectory.turns), trajectory.error) == (StopReason.TOOL_ERRORS, 6, "")
    trajectory = await roll_out(ScriptedEngine(script(*replies)), environment, max_tool_errors=0)
    assert (trajectory.stop_reason, len(trajectory.turns)) == (StopReason.ANSWER, 7)


async def test_observations_are_cut(environment: SearchEnvironment) -> None:
    trajectory = await roll_out(
        ScriptedEngine(script(render_call("grep", {"file": "b.pdf", "text": "z" * 190}), ANSWER)),
        environment,
        observation_chars=100,
    )
    assert "[cut: the first 100 of" in json.loads(trajectory.messages)[3]["content"]


async def test_a_tool_that_the_agent_does_not_have_is_no_function(environment: SearchEnvironment) -> None:
    trajectory = await roll_out(ScriptedEngine(script(GREP, ANSWER)), environment, tools=("search",))
    assert trajectory.turns[0].action is ActionKind.INVALID
    assert "there is no function 'grep'" in json.loads(trajectory.messages)[3]["content"]


@pytest.mark.parametrize(
    "arguments", ['{"file": ' + "[" * 900 + "]" * 900 + "}", '{"file": NaN}', '{"file": "\\ud800", "text": "x"}']
)
async def test_hostile_arguments_cost_their_turn_alone(environment: SearchEnvironment, arguments: str) -> None:
    call = f'<tool_call>{{"name": "grep", "arguments": {arguments}}}</tool_call>'
    trajectory = await roll_out(ScriptedEngine(script(call, ANSWER)), environment)
    assert (trajectory.error, trajectory.stop_reason) == ("", StopReason.ANSWER)
    assert trajectory.turns[0].tool_error or trajectory.turns[0].action is ActionKind.INVALID
    assert schemas.to_table([trajectory], schemas.TRAJECTORIES).num_rows == 1
