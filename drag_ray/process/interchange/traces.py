"""Trajectories as session traces of the Hugging Face Hub, a JSONL file each.

https://huggingface.co/docs/hub/session-traces-format

    {"type": "session", "harness": "drag_ray", "id": "q1/default/0", "name": "How fast may the rotor turn?", "drag_ray": {...}}
    {"type": "message", "message": {"role": "user", "content": "Question: ..."}}
    {"type": "message", "message": {"role": "assistant", "content": "", "toolCalls": [{"id": "call_1", ...}], ...}}
    {"type": "message", "message": {"role": "tool", "content": "Pages found: ...", "toolCallId": "call_1"}}

The Hub shows a folder of such files as conversations. A search is a call of `search_documents` whatever the protocol, as that of
any other tool; an answer is a message, and so is an order of candidates. What the format has no place for is in the first line,
whose further keys it allows: the trajectory's own fields, those of its turns, and the parts of messages with page images. Token
ids and log-probabilities are left out.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from drag_ray.agent.config import AgentConfig
from drag_ray.corpus.problems import Problem, read_one
from drag_ray.engine.generate import join_text
from drag_ray.errors import DataError
from drag_ray.process.interchange_format import Interchange
from drag_ray.process.session_files import read_sessions, write_sessions
from drag_ray.process.steps import (
    OWN_KEY,
    Record,
    StepReader,
    describe_call,
    describe_words,
    explain,
    list_steps,
    parse_record,
    to_own_fields,
    to_own_turn,
)
from drag_ray.types import ActionKind, Trajectory, Turn

_SUFFIX = ".jsonl"
_MAX_NAME_CHARS = 200
_TURNS_KEY, _PARTS_KEY = "turns", "parts"
"""Own fields of a session: its turns and the contents with images, both by the line of the message."""
_HELD_OF_TURN = ("reasoning", "query", "answer", "prompt_token_ids", "completion_token_ids", "completion_logprobs")


class _TraceModel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


class _Function(_TraceModel):
    name: str
    arguments: str


class _ToolCall(_TraceModel):
    id: str
    function: _Function


class _Message(_TraceModel):
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None
    timestamp: int | None = None
    model: str | None = None


class _Line(BaseModel):
    type: Literal["message"]
    message: _Message


class _Header(BaseModel):
    model_config = ConfigDict(extra="allow")

    type: Literal["session"]
    harness: str
    id: str
    name: str = ""


def _write(trajectories: Iterable[Trajectory], path: Path) -> int:
    return write_sessions(trajectories, path, _SUFFIX, _encode)


def _read(path: Path, _: AgentConfig) -> Iterator[Trajectory | Problem]:
    return read_sessions(path, _SUFFIX, _decode)


def _encode(trajectory: Trajectory) -> str:
    turns: Record = {}
    parts: Record = {}
    messages: list[_Message] = []
    for step in list_steps(trajectory):
        call_id = f"call_{step.turn.step}" if step.turn and describe_call(step.turn, trajectory) else None
        messages.append(_to_reply(step.turn, call_id, trajectory) if step.turn else _to_message(step.message))
        if step.turn:
            turns[str(len(messages) + 1)] = to_own_turn(step, _HELD_OF_TURN)
        if step.observation:
            shown = _to_message(step.observation)
            messages.append(shown.model_copy(update={"role": "tool" if call_id else "user", "tool_call_id": call_id}))
        content = (step.observation or step.message)["content"]
        if not isinstance(content, str):
            parts[str(len(messages) + 1)] = content
    messages[0].timestamp = _to_milliseconds(trajectory.started_at)
    own = to_own_fields(trajectory) | {_TURNS_KEY: turns, _PARTS_KEY: parts}
    name = trajectory.question[:_MAX_NAME_CHARS]
    header = {"type": "session", "harness": OWN_KEY, "id": trajectory.id, "name": name, OWN_KEY: own}
    lines = [json.dumps(header, ensure_ascii=False)]
    lines += [_Line(type="message", message=item).model_dump_json(by_alias=True, exclude_none=True) for item in messages]
    return "\n".join(lines) + "\n"


def _to_message(message: Record) -> _Message:
    return _Message(role=message["role"], content=join_text(message))


def _to_reply(turn: Turn, call_id: str | None, trajectory: Trajectory) -> _Message:
    called = describe_call(turn, trajectory)
    arguments = json.dumps(called.arguments, ensure_ascii=False) if called else ""
    call = _ToolCall(id=call_id, function=_Function(name=called.name, arguments=arguments)) if called and call_id else None
    return _Message(
        role="assistant",
        content=describe_words(turn, trajectory),
        reasoning_content=turn.reasoning or None,
        tool_calls=[call] if call else None,
        model=trajectory.model or None,
    )


def _to_milliseconds(started_at: str) -> int | None:
    """None for what a record of elsewhere has in its place."""
    try:
        return int(datetime.fromisoformat(started_at).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _decode(file: Path, data: bytes) -> Trajectory | Problem:
    """The trajectory of a file's lines, or the problem of the first line that is none."""
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    items: list[_Header | _Line] = []
    for number, line in lines:
        item = read_one("broken_record", f"{file}:{number}", _parse_line, line, _Line if items else _Header)
        if isinstance(item, Problem):
            return item
        items.append(item)
    return read_one("broken_record", f"{file}:1", _assemble, items)


LineT = TypeVar("LineT", bound=BaseModel)


def _parse_line(line: bytes, line_type: type[LineT]) -> LineT:
    try:
        return line_type.model_validate(parse_record(line))
    except ValidationError as error:
        raise DataError(explain(error)) from None


def _assemble(items: list[Any]) -> Trajectory:
    if not items:
        raise DataError("the file is empty, expected a session and its messages")
    header, *lines = items
    own = (header.model_extra or {}).get(OWN_KEY)
    of_messages = {name: own.pop(name, None) for name in (_TURNS_KEY, _PARTS_KEY)} if isinstance(own, dict) else {}
    reader = StepReader(own)
    turns, parts = (_check_object(name, value) for name, value in of_messages.items())
    follows_reply = False
    for place, line in enumerate(lines, start=2):
        message, own_turn = line.message, turns.pop(str(place), None)
        content = parts.pop(str(place), message.content)
        if own_turn is not None:
            reader.add_reply(own_turn, _read_held(message, own_turn))
        elif follows_reply and message.role != "assistant":
            reader.add_observation(content)
        else:
            reader.add_message(message.role, content)
        follows_reply = own_turn is not None
    if turns or parts:
        raise DataError(
            f"{OWN_KEY} fields of message {min([*turns, *parts])!r:.20}, of {len(lines)}. Lines are missing: export again."
        )
    return reader.finish(id=header.id)


def _check_object(name: str, value: Any) -> Record:
    if not isinstance(value, dict):
        raise DataError(f"{OWN_KEY}.{name}: got {type(value).__name__}, expected an object")
    return value


def _read_held(message: _Message, own_turn: Any) -> Record:
    action = own_turn.get("action") if isinstance(own_turn, dict) else None
    arguments = parse_record(message.tool_calls[0].function.arguments.encode()) if message.tool_calls else {}
    query = arguments.get("query", "") if message.tool_calls else message.content
    return {
        "reasoning": message.reasoning_content or "",
        "query": query if action == ActionKind.SEARCH else "",
        "answer": message.content if action == ActionKind.ANSWER else "",
        **dict.fromkeys(("prompt_token_ids", "completion_token_ids", "completion_logprobs"), ()),
    }


INTERCHANGE = Interchange(_read, _write)
