"""Rollouts as spans of OpenTelemetry, by its GenAI conventions.

An `invoke_agent` a rollout, and in it a `chat` a reply, a `retrieval` a search and an `execute_tool` a call of another tool; an
order of candidates is a `chat` alone. What the conventions have no name for begins with `drag_ray.`.
https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from drag_ray.agent.rollout import NoteTurn, Rollouts
from drag_ray.agent.scores import list_ranked_turns
from drag_ray.agent.shown_images import Content
from drag_ray.agent.task import RolloutTask
from drag_ray.cluster.telemetry import Telemetry, TelemetryConfig
from drag_ray.corpus.text import to_encodable
from drag_ray.engine.generate import join_text
from drag_ray.engine.sampling import PRESETS
from drag_ray.storage.json_text import parse_json
from drag_ray.types import ActionKind, Trajectory, Turn

AGENT_NAME = "drag_ray"

_NS = 1_000_000_000
_ERROR_NAME = re.compile(r"[A-Za-z_]\w{0,60}")


class RolloutTracer:
    """Runs rollouts and, where the options name a collector, sends a span for each, with children for its replies and searches,
    once it is over."""

    def __init__(self, config: TelemetryConfig, provider: str, attributes: Mapping[str, str]) -> None:
        self._telemetry = Telemetry(config, attributes) if config.endpoint else None
        self._provider = provider
        self._with_content = config.content

    async def deliver(self) -> None:
        """Send what waits (see `Telemetry.deliver`)."""
        if self._telemetry:
            await self._telemetry.deliver()

    async def run(self, rollouts: Rollouts, task: RolloutTask, note_turn: NoteTurn = lambda *_: None) -> Trajectory:
        """Run a rollout. Raises what `Rollouts.run` does, whose span is then an error."""
        if self._telemetry is None:
            return await rollouts.run(task, note_turn)
        ended: list[tuple[Turn, int]] = []

        def note(turn: Turn, observation: Content) -> None:
            ended.append((turn, time.time_ns()))
            note_turn(turn, observation)

        started = time.time_ns()
        trajectory, error = None, "cancelled"
        try:
            trajectory = await rollouts.run(task, note)
            error = trajectory.error
            return trajectory
        except Exception as problem:
            error = type(problem).__name__
            raise
        finally:
            self._send(self._telemetry.tracer, rollouts.orders, task, trajectory, ended, started, error)

    def _send(
        self,
        tracer: Any,
        orders: bool,
        task: RolloutTask,
        trajectory: Trajectory | None,
        ended: list[tuple[Turn, int]],
        started: int,
        error: str,
    ) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context

        root = tracer.start_span(f"invoke_agent {AGENT_NAME}", kind=SpanKind.INTERNAL, start_time=started)
        root.set_attributes(self._describe_rollout(task, trajectory, [turn for turn, _ in ended]))
        _mark_error(root, error)
        context = set_span_in_context(root)
        messages = parse_json(trajectory.messages) if trajectory and self._with_content else []
        model = trajectory.provenance.model if trajectory else ""
        for turn, ended_at in ended:
            is_order = orders and turn.action is ActionKind.SEARCH  # which reads no index
            acted_s = {ActionKind.SEARCH: turn.ranking.search_s, ActionKind.TOOL: turn.call.duration_s}.get(turn.action, 0.0)
            acted_from = ended_at - int(acted_s * _NS)
            asked_from = max(started, acted_from - int(turn.reply.generate_s * _NS))
            chat = tracer.start_span(f"chat {model}".strip(), context, SpanKind.CLIENT, start_time=asked_from)
            chat.set_attributes(self._describe_reply(task, model, turn, messages))
            if is_order:
                chat.set_attribute("drag_ray.action", "order")
            chat.end(acted_from)
            if turn.action is ActionKind.SEARCH and not is_order:
                index = trajectory.provenance.index_fingerprint if trajectory else ""
                search = tracer.start_span(f"retrieval {index}".strip(), context, SpanKind.CLIENT, start_time=acted_from)
                search.set_attributes(self._describe_search(index, turn))
                _mark_error(search, turn.error)
                search.end(ended_at)
            elif turn.action is ActionKind.TOOL:
                call = tracer.start_span(f"execute_tool {turn.call.tool}", context, SpanKind.INTERNAL, start_time=acted_from)
                call.set_attributes(self._describe_call(turn))
                _mark_error(call, turn.call.error)
                call.end(ended_at)
        root.end()

    def _describe_rollout(self, task: RolloutTask, trajectory: Trajectory | None, turns: list[Turn]) -> dict[str, Any]:
        described: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": self._provider,
            "gen_ai.agent.name": AGENT_NAME,
            "gen_ai.usage.input_tokens": sum(turn.reply.num_prompt_tokens for turn in turns),
            "gen_ai.usage.output_tokens": sum(turn.reply.num_completion_tokens for turn in turns),
            "drag_ray.sampling.preset": task.preset,
            "drag_ray.num_turns": len(turns),
        }
        if trajectory:
            described["gen_ai.request.model"] = trajectory.provenance.model
            described["gen_ai.data_source.id"] = trajectory.provenance.index_fingerprint
            described["drag_ray.stop_reason"] = trajectory.stop_reason.value
        if task.question.evidence:  # of a collection; what an endpoint is asked has neither an id nor an evidence page
            described["gen_ai.conversation.id"] = task.id
            described["drag_ray.question.id"] = task.question.id
            ranked = list_ranked_turns(trajectory) if trajectory else turns
            described["drag_ray.best_rank_score"] = max((turn.ranking.rank_score for turn in ranked), default=0.0)
        return described

    def _describe_reply(self, task: RolloutTask, model: str, turn: Turn, messages: list[Any]) -> dict[str, Any]:
        sampling = PRESETS[task.preset]
        described = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._provider,
            "gen_ai.request.model": model,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.usage.input_tokens": turn.reply.num_prompt_tokens,
            "gen_ai.usage.output_tokens": turn.reply.num_completion_tokens,
            "gen_ai.response.finish_reasons": [turn.reply.finish_reason],
            "drag_ray.step": turn.step,
            "drag_ray.action": turn.action.value,
        }
        if self._with_content:
            reply = _to_message("assistant", turn.raw_text) | {"finish_reason": turn.reply.finish_reason}
            prompt = [_to_message(message["role"], join_text(message)) for message in messages[: turn.num_prompt_messages]]
            described["gen_ai.input.messages"] = json.dumps(prompt)
            described["gen_ai.output.messages"] = json.dumps([reply])
        return described

    def _describe_search(self, index: str, turn: Turn) -> dict[str, Any]:
        described = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": index,
            "drag_ray.step": turn.step,
            "drag_ray.num_hits": len(turn.ranking.hits),
            "drag_ray.partial_search": turn.ranking.is_partial,
        }
        if self._with_content:
            documents = [{"id": f"{hit.file}#{hit.page_number}", "score": hit.score} for hit in turn.ranking.hits]
            described["gen_ai.retrieval.query.text"] = to_encodable(turn.query)
            described["gen_ai.retrieval.documents"] = json.dumps(documents)
        return described

    def _describe_call(self, turn: Turn) -> dict[str, Any]:
        described = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": turn.call.tool,
            "gen_ai.tool.type": "function",
            "drag_ray.step": turn.step,
        }
        if self._with_content:
            described["gen_ai.tool.call.arguments"] = to_encodable(turn.call.arguments)
        return described


def _to_message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _mark_error(span: Any, error: str) -> None:
    """Its class alone: what an error says may quote a text."""
    from opentelemetry.trace import Status, StatusCode

    if error:
        name = error.partition(":")[0]
        span.set_attribute("error.type", name if _ERROR_NAME.fullmatch(name) else "_OTHER")
        span.set_status(Status(StatusCode.ERROR))
