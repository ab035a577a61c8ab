"""A model behind an endpoint that calls tools: what it is sent, and the rollout that comes of it."""

import json
from pathlib import Path
from typing import Any

from chat_server import Answer, serve_chat
from rollout_cases import QUESTION

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.endpoints.endpoint import build_endpoint_engine
from drag_ray.search.searcher import Searcher
from drag_ray.types import ActionKind, Evidence, StopReason, Trajectory

PROTOCOL = get_protocol("tools")
REPLIES = (
    PROTOCOL.render_search("rotor"),
    "It is in b.pdf.\n" + render_call("grep", {"file": "b.pdf", "text": "340"}),
    render_call("read_page", {"file": "b.pdf", "page": 99}),
    PROTOCOL.render_answer("340 rpm", (Evidence("b.pdf", 2),)),
)
AGENT = AgentConfig(protocol="tools", tools=("search", "read_page", "grep"), query_mode="rewrite", max_iterations=6, top_k=2)


def call(body: dict[str, Any], number: int) -> Answer:
    """The reply of a turn, as an endpoint has it: without the string that ended it."""
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    return Answer(REPLIES[turn].removesuffix("</tool_call>"))


async def roll_out(environment: SearchEnvironment, folder: Path) -> tuple[Trajectory, list[dict[str, Any]]]:
    """The rollout, and what the endpoint was sent."""
    index = environment._index
    assert isinstance(index, Searcher)
    with serve_chat(call) as served:
        config = EngineConfig.model_validate({"backend": "openai", "model": "m", "endpoint": {"address": served.address}})
        engine = build_endpoint_engine(folder / "spending.jsonl", config, None, ())
        rollouts = Rollouts(AGENT, Policy("m"), engine, environment, "index", pages=index)
        trajectory = await rollouts.run(RolloutTask(QUESTION, 0, "default", 7))
        await engine.close()
    return trajectory, served.asked


async def test_its_calls_are_those_of_a_local_model(environment: SearchEnvironment, tmp_path: Path) -> None:
    trajectory, _ = await roll_out(environment, tmp_path)
    actions = [ActionKind.SEARCH, ActionKind.TOOL, ActionKind.TOOL, ActionKind.ANSWER]
    assert [turn.action for turn in trajectory.turns] == actions
    assert [(turn.tool, bool(turn.tool_error)) for turn in trajectory.turns[1:3]] == [("grep", False), ("read_page", True)]
    assert [turn.raw_text for turn in trajectory.turns] == list(REPLIES)
    assert (trajectory.stop_reason, trajectory.final_answer, trajectory.error) == (StopReason.ANSWER, "340 rpm", "")
    # The record is that of any model: what a student's own template shows.
    names = [function["function"]["name"] for function in json.loads(trajectory.tools)]
    assert names == ["search_documents", "read_page", "grep", "provide_answer"]
    assert [message["role"] for message in json.loads(trajectory.messages)[2:5]] == ["assistant", "tool", "assistant"]
    assert "<tools>" not in json.loads(trajectory.messages)[0]["content"]


async def test_it_is_sent_functions_and_observations_in_words(environment: SearchEnvironment, tmp_path: Path) -> None:
    _, asked = await roll_out(environment, tmp_path)
    sent = asked[-1]
    assert not sent.keys() & {"tools", "tool_choice"}
    roles = [message["role"] for message in sent["messages"]]
    assert roles == ["system", "user", *["assistant", "user"] * 3]
    system = sent["messages"][0]["content"]
    assert all(json.dumps(name) in system for name in ("search_documents", "read_page", "grep", "provide_answer"))
    told = [message["content"] for message in sent["messages"][3::2]]
    assert all(text.startswith("<tool_response>\n") and text.endswith("\n</tool_response>") for text in told)
    assert "1 line with '340' in b.pdf" in told[1]
    assert "The call failed: no page 99" in told[2]
