"""Trajectories in Harbor's Agent Trajectory Interchange Format, a JSON file each.

https://harborframework.com/docs/trajectory-format

    {"schema_version": "ATIF-v1.8", "trajectory_id": "q1/default/0", "agent": {"name": "drag_ray", "model_name": "...", ...},
     "steps": [{"step_id": 1, "source": "system", "message": "..."}, {"step_id": 2, "source": "user", "message": "Question: ..."},
               {"step_id": 3, "source": "agent", "message": "", "reasoning_content": "...", "metrics": {...},
                "tool_calls": [{"tool_call_id": "call_1", "function_name": "search_documents", "arguments": {"query": "rotor"}}],
                "observation": {"results": [{"source_call_id": "call_1", "content": "Pages found: ..."}]}, "extra": {...}}], ...}

A search is a call of `search_documents` whatever the protocol, as that of any other tool; an answer is a message, and so is an
order of candidates; examples in the prompt are copied context.
The fields that the format has no place for are `extra.drag_ray` of the trajectory and of its replies.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from drag_ray import __version__
from drag_ray.agent.config import AgentConfig
from drag_ray.corpus.problems import Problem, read_one
from drag_ray.errors import DataError
from drag_ray.process.interchange_format import Interchange, keep_first
from drag_ray.process.steps import (
    OWN_KEY,
    Record,
    Step,
    StepReader,
    describe_call,
    describe_words,
    explain,
    list_steps,
    parse_record,
    to_own_fields,
    to_own_turn,
)
from drag_ray.storage.artifacts import new_folder
from drag_ray.storage.file_access import list_folder
from drag_ray.storage.json_text import parse_json
from drag_ray.types import ActionKind, Trajectory

SCHEMA_VERSION = "ATIF-v1.8"
"""Written; every 1.x is read."""

MAX_FILE_BYTES = 64 * 2**20
"""No trajectory is nearly as long; a larger file is set aside without being read."""
_SUFFIX = ".json"
_MAX_NAME_CHARS = 80
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SOURCES: dict[str, Literal["system", "user", "agent"]] = {"system": "system", "assistant": "agent"}
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_HELD = ("model",)
_HELD_OF_TURN = (
    *("reasoning", "query", "answer", "num_prompt_tokens", "num_completion_tokens"),
    *("prompt_token_ids", "completion_token_ids", "completion_logprobs"),
)


class _ImageSource(BaseModel):
    media_type: str
    path: str


class _Part(BaseModel):
    type: Literal["text", "image"]
    text: str | None = None
    source: _ImageSource | None = None


_Content = str | list[_Part]


class _ToolCall(BaseModel):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class _Result(BaseModel):
    source_call_id: str | None = None
    content: _Content | None = None


class _Observation(BaseModel):
    results: list[_Result]


class _Metrics(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None


class _Step(BaseModel):
    step_id: int
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    message: _Content
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    is_copied_context: bool | None = None
    extra: Record | None = None


class _Agent(BaseModel):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[Record] | None = None


class _FinalMetrics(BaseModel):
    total_prompt_tokens: int
    total_completion_tokens: int
    total_steps: int


class _Document(BaseModel):
    schema_version: str
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: _Agent
    steps: list[_Step]
    final_metrics: _FinalMetrics | None = None
    extra: Record | None = None


def write_sessions(trajectories: Iterable[Trajectory], folder: Path) -> int:
    """Write a file for each trajectory into a new folder, which is whole or absent; returns how many. Raises DataError where
    something is there already, and ArtifactError where the disk refuses."""
    num_files = 0
    with new_folder(folder, ", and a file for each trajectory needs a new or empty folder. Name another one.") as scratch:
        for num_files, trajectory in enumerate(trajectories, start=1):
            name = f"{num_files - 1:06d}-{_UNSAFE.sub('-', trajectory.id)[:_MAX_NAME_CHARS]}{_SUFFIX}"
            (scratch / name).write_text(_to_document(trajectory).model_dump_json(exclude_none=True), encoding="utf-8")
    return num_files


def read_sessions(path: Path, _: AgentConfig) -> Iterator[Trajectory | Problem]:
    """The sessions of the files in a folder, in the order of their names, or of the file at `path`.

    A file of another kind, or too large a one, and a trajectory that was there before, become problems. Links are not followed.
    Raises DataError where there is nothing at `path`, and ArtifactError where the folder cannot be listed.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or folder. Give what drag-ray export has written, or one file of it.")
    files = (file for file in list_folder(path) if not file.name.startswith(".")) if path.is_dir() else [path]
    yield from keep_first((str(file), read_one("broken_file", str(file), _read_file, file)) for file in files)


def _read_file(file: Path) -> Trajectory | Problem:
    if file.is_symlink() or not file.is_file() or not file.name.endswith(_SUFFIX):
        return Problem(str(file), f"expected a regular file whose name ends with {_SUFFIX}", "unknown_file")
    with file.open("rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise DataError(f"more than {MAX_FILE_BYTES:,} bytes, which no trajectory has")
    return read_one("broken_record", str(file), _parse, data)


def _to_document(trajectory: Trajectory) -> _Document:
    steps = [_to_step(number, step, trajectory) for number, step in enumerate(list_steps(trajectory), start=1)]
    steps[0].timestamp = _to_timestamp(trajectory.provenance.started_at)
    return _Document(
        schema_version=SCHEMA_VERSION,
        session_id=trajectory.id,
        trajectory_id=trajectory.id,
        agent=_Agent(
            name=OWN_KEY,
            version=__version__,
            model_name=trajectory.provenance.model,
            tool_definitions=parse_json(trajectory.tools) if trajectory.tools else None,
        ),
        steps=steps,
        final_metrics=_FinalMetrics(
            total_prompt_tokens=sum(turn.reply.num_prompt_tokens for turn in trajectory.turns),
            total_completion_tokens=sum(turn.reply.num_completion_tokens for turn in trajectory.turns),
            total_steps=len(steps),
        ),
        extra={OWN_KEY: to_own_fields(trajectory, _HELD)},
    )


def _to_step(number: int, step: Step, trajectory: Trajectory) -> _Step:
    role, turn = step.message["role"], step.turn
    if turn is None:
        copied = True if role == "assistant" else None
        content = _to_content(step.message["content"])
        return _Step(step_id=number, source=_SOURCES.get(role, "user"), message=content, is_copied_context=copied)
    called = describe_call(turn, trajectory)
    call = _ToolCall(tool_call_id=f"call_{turn.step}", function_name=called[0], arguments=called[1]) if called else None
    call_id = call.tool_call_id if call else None
    result = _Result(source_call_id=call_id, content=_to_content(step.observation["content"])) if step.observation else None
    return _Step(
        step_id=number,
        source="agent",
        message=describe_words(turn, trajectory),
        reasoning_content=turn.reasoning or None,
        tool_calls=[call] if call else None,
        observation=_Observation(results=[result]) if result else None,
        metrics=_Metrics(
            prompt_tokens=turn.reply.num_prompt_tokens,
            completion_tokens=turn.reply.num_completion_tokens,
            prompt_token_ids=list(turn.reply.prompt_token_ids) or None,
            completion_token_ids=list(turn.reply.completion_token_ids) or None,
            logprobs=list(turn.reply.completion_logprobs) or None,
        ),
        extra={OWN_KEY: to_own_turn(step, _HELD_OF_TURN)},
    )


def _to_content(content: str | list[dict[str, str]]) -> _Content:
    if isinstance(content, str):
        return content
    return [
        _Part(type="image", source=_ImageSource(media_type="image/jpeg", path=part["image"]))
        if part["type"] == "image"
        else _Part(type="text", text=part["text"])
        for part in content
    ]


def _to_timestamp(started_at: str) -> str | None:
    """None for what a record of elsewhere has in its place."""
    try:
        return datetime.fromisoformat(started_at).isoformat()
    except ValueError:
        return None


def _parse(data: bytes) -> Trajectory:
    try:
        document = _Document.model_validate(parse_record(data))
    except ValidationError as error:
        raise DataError(explain(error)) from None
    if not re.fullmatch(r"ATIF-v1\.\d{1,3}", document.schema_version):
        raise DataError(f"schema_version: got {document.schema_version!r:.40}, expected ATIF-v1.0 to {SCHEMA_VERSION}")
    reader = StepReader((document.extra or {}).get(OWN_KEY))
    for step in document.steps:
        own = (step.extra or {}).get(OWN_KEY)
        if own is None:
            reader.add_message(_ROLES[step.source], _from_content(step.message))
        else:
            _read_reply(step, own, reader)
    return reader.finish(id=document.trajectory_id or document.session_id, model=document.agent.model_name or "")


def _read_reply(step: _Step, own: Any, reader: StepReader) -> None:
    metrics = step.metrics or _Metrics()
    call = step.tool_calls[0] if step.tool_calls else None
    action = own.get("action") if isinstance(own, dict) else None
    query = call.arguments.get("query") if call else step.message
    held = {
        "reasoning": step.reasoning_content or "",
        "query": query if action == ActionKind.SEARCH else "",
        "answer": step.message if action == ActionKind.ANSWER else "",
        "num_prompt_tokens": metrics.prompt_tokens,
        "num_completion_tokens": metrics.completion_tokens,
        "prompt_token_ids": metrics.prompt_token_ids or (),
        "completion_token_ids": metrics.completion_token_ids or (),
        "completion_logprobs": metrics.logprobs or (),
    }
    reader.add_reply(own, held)
    for result in step.observation.results if step.observation else ():
        reader.add_observation(_from_content(result.content or ""))


def _from_content(content: _Content) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [
        {"type": "image", "image": part.source.path if part.source else None}
        if part.type == "image"
        else {"type": "text", "text": part.text}
        for part in content
    ]


INTERCHANGE = Interchange(read_sessions, write_sessions)
