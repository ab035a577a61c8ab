"""/v1/ask to an adapter that calls tools."""

import json
from pathlib import Path

import pytest
from serve_cases import Served

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.record import RECORD_NAME, AgentRecord, write_record
from drag_ray.engine.generate import Request
from drag_ray.search.searcher import Searcher

AGENT = AgentConfig(query_mode="rewrite", protocol="tools", tools=("search", "read_page"), max_iterations=4)
PROTOCOL = get_protocol("tools")
REPLIES = (
    PROTOCOL.render_search("rotor"),
    render_call("read_page", {"file": "b.pdf", "page": 2}),
    render_call("read_page", {"file": "b.pdf", "page": 7}),
    PROTOCOL.render_answer("340 rpm"),
)


def reply(request: Request) -> str:
    return REPLIES[sum(message["role"] == "assistant" for message in request.messages)]


def test_an_adapter_calls_the_tools_that_it_was_trained_with(searcher: Searcher, tmp_path: Path) -> None:
    write_record(tmp_path, AgentRecord(agent=AGENT))
    served = Served(searcher, tmp_path, reply, own=AgentRecord(agent=AGENT))
    answer = served.post("/v1/ask", question="How fast may the rotor turn?").json()
    assert (answer["answer"], answer["stop_reason"]) == ("340 rpm", "answer")
    called = [(turn["action"], turn["tool"], turn["arguments"]) for turn in answer["turns"]]
    assert called[1] == ("tool", "read_page", '{"file": "b.pdf", "page": 2}')
    assert [bool(turn["tool_error"]) for turn in answer["turns"]] == [False, False, True, False]
    names = [function["function"]["name"] for function in served.engine.requests[0].tools]
    assert names == ["search_documents", "read_page", "provide_answer"]
    assert "speed limit is 340 rpm" in served.engine.requests[2].messages[-1]["content"]


@pytest.mark.parametrize("tool", ["visit", "python_interpreter", "read_page", "browse"])
def test_an_adapter_calls_no_tool_that_the_host_does_not_name(searcher: Searcher, tmp_path: Path, tool: str) -> None:
    agent = AGENT.model_dump(mode="json") | {"tools": ["search", tool], "visit": {"allow_private": True}}
    (tmp_path / RECORD_NAME).write_text(json.dumps({"agent": agent}))
    served = Served(searcher, tmp_path, lambda _: render_call(tool, {"url": "http://127.0.0.1/?page=secret", "code": "1"}))
    answer = served.post("/v1/ask", question="How fast may the rotor turn?").json()
    assert {turn["action"] for turn in answer["turns"]} == {"invalid"}
    names = [function["function"]["name"] for function in served.engine.requests[0].tools]
    assert names == ["search_documents", "provide_answer"]
