"""Rollouts as a collector of OpenTelemetry is told of them."""

import json
import logging
import time
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from otlp_receiver import Receiver, read_attributes, receive_spans
from pydantic import ValidationError
from rollout_cases import QUESTION, build_rollouts, script
from scripted_engine import ScriptedEngine

from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.protocols.written_call import render_call
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.spans import RolloutTracer
from drag_ray.agent.task import RolloutTask
from drag_ray.cluster import telemetry
from drag_ray.cluster.telemetry import TelemetryConfig
from drag_ray.errors import EngineDiedError, RolloutError
from drag_ray.types import Evidence, Trajectory

TASK = RolloutTask(QUESTION, 0, "default", 7)
REPLIES = ("<search>rotor limit</search>", "What?", "<answer>340 rpm <cite>b.pdf#2</cite></answer>")
TEXTS = ("How fast", "rotor", "340", "What?")


def list_told(receiver: Receiver) -> str:
    """All attributes of all spans, without their ids and times."""
    return json.dumps([read_attributes(span) for span in receiver.spans])


async def deliver_rollouts(rollouts: Rollouts, config: TelemetryConfig, task: RolloutTask = TASK) -> Trajectory:
    tracer = RolloutTracer(config, "vllm", {"drag_ray.run": "mine", "drag_ray.stage": "collect"})
    try:
        return await tracer.run(rollouts, task)
    finally:
        await tracer.deliver()


async def tell(environment: SearchEnvironment, config: TelemetryConfig, *replies: str | Exception) -> Trajectory:
    return await deliver_rollouts(build_rollouts(ScriptedEngine(script(*replies)), environment), config)


async def test_a_rollout_is_a_span_with_children_for_its_replies_and_searches(environment: SearchEnvironment) -> None:
    with receive_spans() as receiver:
        began = time.time_ns()
        trajectory = await tell(environment, TelemetryConfig(endpoint=receiver.url), *REPLIES)
    [root] = receiver.list_roots()
    children = receiver.list_children(root)
    assert (root.name, root.kind) == ("invoke_agent drag_ray", Span.SPAN_KIND_INTERNAL)
    names = ["chat model", "retrieval index", "chat model", "chat model"]
    assert [(child.name, child.kind) for child in children] == [(name, Span.SPAN_KIND_CLIENT) for name in names]
    assert began <= root.start_time_unix_nano <= children[0].start_time_unix_nano
    moments = [moment for child in children for moment in (child.start_time_unix_nano, child.end_time_unix_nano)]
    assert moments == sorted(moments)
    assert moments[-1] <= root.end_time_unix_nano <= time.time_ns()
    assert {span.trace_id for span in receiver.spans} == {root.trace_id}
    told = read_attributes(root)
    assert told["gen_ai.operation.name"] == "invoke_agent"
    assert (told["gen_ai.provider.name"], told["gen_ai.request.model"], told["gen_ai.agent.name"]) == (
        "vllm",
        "model",
        "drag_ray",
    )
    assert (told["gen_ai.conversation.id"], told["gen_ai.data_source.id"]) == ("q1/default/0", "index")
    turns = trajectory.turns
    assert told["gen_ai.usage.input_tokens"] == sum(turn.reply.num_prompt_tokens for turn in turns) > 0
    assert told["gen_ai.usage.output_tokens"] == sum(turn.reply.num_completion_tokens for turn in turns) > 0
    assert (told["drag_ray.stop_reason"], told["drag_ray.num_turns"]) == ("answer", 3)
    assert told["drag_ray.best_rank_score"] == max(turn.ranking.rank_score for turn in turns) > 0
    replies = [read_attributes(child) for child in children if child.name == "chat model"]
    assert [reply["drag_ray.action"] for reply in replies] == ["search", "invalid", "answer"]
    assert [reply["gen_ai.usage.input_tokens"] for reply in replies] == [turn.reply.num_prompt_tokens for turn in turns]
    assert (replies[0]["gen_ai.operation.name"], replies[0]["gen_ai.response.finish_reasons"]) == ("chat", ["stop"])
    assert (replies[0]["gen_ai.request.temperature"], replies[0]["gen_ai.request.top_p"]) == (0.7, 0.95)
    search = read_attributes(children[1])
    assert (search["gen_ai.operation.name"], search["drag_ray.num_hits"]) == ("retrieval", len(turns[0].ranking.hits))
    sender = receiver.sender
    assert (sender["service.name"], sender["drag_ray.run"], sender["drag_ray.stage"]) == ("drag_ray", "mine", "collect")
    assert {span.status.code for span in receiver.spans} == {Status.STATUS_CODE_UNSET}
    assert not [text for text in TEXTS if text in list_told(receiver)]


async def test_texts_are_told_only_where_they_are_asked_for(environment: SearchEnvironment) -> None:
    with receive_spans() as receiver:
        trajectory = await tell(environment, TelemetryConfig(endpoint=receiver.url, content=True), *REPLIES)
    [root] = receiver.list_roots()
    first, search, second, *_ = [read_attributes(child) for child in receiver.list_children(root)]
    messages: list[Any] = json.loads(trajectory.messages)
    as_sent = [{"role": item["role"], "parts": [{"type": "text", "content": item["content"]}]} for item in messages]
    assert json.loads(first["gen_ai.input.messages"]) == as_sent[:2]
    assert json.loads(first["gen_ai.output.messages"]) == [{**as_sent[2], "finish_reason": "stop"}]
    assert json.loads(second["gen_ai.input.messages"]) == as_sent[:4]
    assert search["gen_ai.retrieval.query.text"] == "rotor limit"
    found = [{"id": f"{hit.file}#{hit.page_number}", "score": hit.score} for hit in trajectory.turns[0].ranking.hits]
    assert json.loads(search["gen_ai.retrieval.documents"]) == found


@pytest.mark.parametrize(
    ("error", "kind"), [(RolloutError("secret of rotor"), "RolloutError"), (EngineDiedError("secret"), "EngineDiedError")]
)
async def test_a_failure_is_told_by_its_kind(environment: SearchEnvironment, error: Exception, kind: str) -> None:
    with receive_spans() as receiver:
        try:
            await tell(environment, TelemetryConfig(endpoint=receiver.url), REPLIES[0], error)
        except EngineDiedError:
            assert kind == "EngineDiedError"
    [root] = receiver.list_roots()
    assert root.status.code == Status.STATUS_CODE_ERROR
    assert read_attributes(root)["error.type"] == kind
    assert [child.name.split()[0] for child in receiver.list_children(root)] == ["chat", "retrieval"]
    assert "secret" not in list_told(receiver)


@pytest.mark.seconds
async def test_calls_of_tools_are_spans_and_their_arguments_texts(environment: SearchEnvironment) -> None:
    replies = [render_call("grep", {"file": "b.pdf", "text": "340"}), render_call("read_page", {"file": "b.pdf", "page": 99})]
    tools = {"protocol": "tools", "tools": ("search", "read_page", "grep"), "max_iterations": 2}
    rollouts = build_rollouts(ScriptedEngine(script(*replies)), environment, **tools)
    for content in (False, True):
        with receive_spans() as receiver:
            await deliver_rollouts(rollouts, TelemetryConfig(endpoint=receiver.url, content=content))
        _, found, _, missing = receiver.list_children(receiver.list_roots()[0])
        assert (found.name, missing.name) == ("execute_tool grep", "execute_tool read_page")
        assert [found.status.code, missing.status.code] == [Status.STATUS_CODE_UNSET, Status.STATUS_CODE_ERROR]
        told = read_attributes(found)
        assert (told["gen_ai.operation.name"], told["gen_ai.tool.name"]) == ("execute_tool", "grep")
        assert ("340" in list_told(receiver)) == content
        assert ("gen_ai.tool.call.arguments" in told) == content


async def test_an_order_of_candidates_is_a_reply_and_no_search(environment: SearchEnvironment) -> None:
    pairs = {"candidates": 3, "window": 2, "step": 1}
    question = replace(QUESTION, candidates=(Evidence("a.pdf", 1), Evidence("c.pdf", 1), Evidence("b.pdf", 2)))
    engine = ScriptedEngine(script(*["<answer>[2, 1]</answer>"] * 2))
    rollouts = build_rollouts(engine, environment, task="rerank", query_mode="expand", max_iterations=1, top_k=1, rerank=pairs)
    with receive_spans() as receiver:
        config = TelemetryConfig(endpoint=receiver.url, content=True)
        await deliver_rollouts(rollouts, config, RolloutTask(question, 0, "greedy", 7))
    [root] = receiver.list_roots()
    children = receiver.list_children(root)
    assert [child.name for child in children] == ["chat model", "chat model"]
    assert [read_attributes(child)["drag_ray.action"] for child in children] == ["order", "order"]
    assert "gen_ai.retrieval" not in list_told(receiver)
    assert read_attributes(root)["drag_ray.best_rank_score"] == 1.0


async def test_without_an_endpoint_nothing_is_told(environment: SearchEnvironment) -> None:
    tracer = RolloutTracer(TelemetryConfig(), "vllm", {})
    rollouts = build_rollouts(ScriptedEngine(script(*REPLIES)), environment)
    assert not (await tracer.run(rollouts, TASK)).error
    await tracer.deliver()


@pytest.mark.seconds
async def test_a_collector_that_is_away_stops_nothing_and_is_complained_of_once(
    environment: SearchEnvironment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_TIMEOUT_S", 1)
    with receive_spans() as receiver:
        config = TelemetryConfig(endpoint=receiver.url)
    rollouts = build_rollouts(ScriptedEngine(script(*REPLIES)), environment)
    tracer = RolloutTracer(config, "vllm", {})
    with caplog.at_level(logging.WARNING):
        started = time.monotonic()
        for _ in range(300):
            assert not (await tracer.run(rollouts, TASK)).error
        await tracer.deliver()
        assert time.monotonic() - started < 20
        deadline = time.monotonic() + 30
        while not caplog.records:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        started = time.monotonic()
        await tracer.deliver()
        assert time.monotonic() - started < 0.5
    complaints = [record.getMessage() for record in caplog.records]
    assert complaints == [f"telemetry.endpoint {config.endpoint} accepts no spans; they are dropped, and the work continues"]


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "file:///etc/passwd", "http://", "http://a b"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ValidationError):
        TelemetryConfig(endpoint=endpoint)
