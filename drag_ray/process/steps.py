"""A trajectory as other programs see one, a list of steps, and the trajectory of such a list: for `interchange`.

A step is a message to the policy, or its reply together with what it led to. What has no place in another format (evidence, hits,
sampling and so on) travels in it as *own fields*, under `OWN_KEY`. Of these nothing is believed that can be computed.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from drag_ray import schemas
from drag_ray.agent.environment import compute_evidence_rank, score_ranking
from drag_ray.agent.tasks import ORDERING
from drag_ray.corpus.records import read_name
from drag_ray.errors import DataError
from drag_ray.storage.json_text import parse_json
from drag_ray.tools.search import TOOL as SEARCH
from drag_ray.types import ActionKind, Hit, Trajectory, Turn

OWN_KEY = "drag_ray"
"""Where other formats hold the own fields."""

Record = dict[str, Any]
Message = dict[str, Any]

_VERSION_KEY = "schema_version"
_ROLE_KEY = "observation_role"
# Computed when a trajectory is read.
_DERIVED = frozenset({"id", "turns", "messages", "question_rank"})
_DERIVED_OF_TURN = frozenset({"step", "num_prompt_messages", "evidence_rank", "rank_score"})
_TRAJECTORY = TypeAdapter(Trajectory)


class _TextPart(TypedDict):
    type: Literal["text"]
    text: str


class _ImagePart(TypedDict):
    type: Literal["image"]
    image: str


class _Message(TypedDict):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[_TextPart | _ImagePart]


_MESSAGES = TypeAdapter(list[_Message])


@dataclass(frozen=True, slots=True)
class Step:
    """A message of a conversation; with a `turn` a reply, and then `observation` is the message that answered it, if one did."""

    message: Message
    turn: Turn | None = None
    observation: Message | None = None


def describe_call(turn: Turn, trajectory: Trajectory) -> tuple[str, Record] | None:
    """The name and arguments of the call in a reply; None where it calls nothing, as one that orders candidates."""
    if turn.action is ActionKind.SEARCH and trajectory.task not in ORDERING:
        return SEARCH.name, {"query": turn.query}
    return (turn.call.tool, parse_json(turn.call.arguments)) if turn.action is ActionKind.TOOL else None


def describe_words(turn: Turn, trajectory: Trajectory) -> str:
    """The words of a reply besides its reasoning and its call: an answer, an order, or what could not be read."""
    order = turn.query if trajectory.task in ORDERING else ""
    return {ActionKind.ANSWER: turn.answer.text, ActionKind.INVALID: turn.raw_text, ActionKind.SEARCH: order}.get(turn.action, "")


def list_steps(trajectory: Trajectory) -> list[Step]:
    """The conversation of a trajectory, each reply with its turn. Raises DataError where the trajectory has no conversation, or a
    reply is not in it."""
    try:
        messages: list[Message] = [{**message} for message in _MESSAGES.validate_json(trajectory.messages)]
    except ValidationError as error:
        raise DataError(
            f"trajectory {trajectory.id!r}: its conversation cannot be read: {explain(error)}. Collect again."
        ) from None
    turns = {turn.num_prompt_messages: turn for turn in trajectory.turns}
    if not messages or max(turns, default=0) >= len(messages):
        raise DataError(f"trajectory {trajectory.id!r}: its conversation has {len(messages)} messages and lacks replies.")
    steps: list[Step] = []
    for place, message in enumerate(messages):
        follows_reply = bool(steps) and steps[-1].turn is not None and steps[-1].observation is None
        if place in turns:
            steps.append(Step(message, turns[place]))
        elif follows_reply and place - 1 in turns and message["role"] != "assistant":
            steps[-1] = replace(steps[-1], observation=message)
        else:
            steps.append(Step(message))
    return steps


def to_own_fields(trajectory: Trajectory, held: Collection[str] = ()) -> Record:
    """The fields of a trajectory that another format has no place for. `held`: names of those that it has a place for."""
    row = schemas.flatten(schemas.to_row(replace(trajectory, turns=())), schemas.PATHS)
    return {_VERSION_KEY: schemas.SCHEMA_VERSION} | {
        name: value for name, value in row.items() if name not in _DERIVED and name not in held
    }


def to_own_turn(step: Step, held: Collection[str]) -> Record:
    """As `to_own_fields`, for the turn of a reply, with the role of the message that answered it."""
    row = schemas.flatten(schemas.to_row(step.turn), schemas.TURN_PATHS)
    own = {name: value for name, value in row.items() if name not in _DERIVED_OF_TURN and name not in held}
    return own | ({_ROLE_KEY: step.observation["role"]} if step.observation else {})


class StepReader:
    """Makes a trajectory of steps. Add them in their order, then `finish`. Raises DataError where there are none, or they are of
    another version. `own`: the own fields, as they were found."""

    def __init__(self, own: Any) -> None:
        if not isinstance(own, dict):
            raise DataError(
                f"got no {OWN_KEY!r} fields: it was not written by drag-ray export. The evidence of the question and the "
                "pages that a search found are not in this format itself, and nothing can be learned without them."
            )
        version = own.get(_VERSION_KEY)
        if version not in (schemas.SCHEMA_VERSION, schemas.EARLIER_VERSION):
            raise DataError(
                f"{OWN_KEY} fields of version {version!r:.20}, this code reads {schemas.SCHEMA_VERSION!r}. Export again."
            )
        self._own = {name: value for name, value in own.items() if name != _VERSION_KEY}
        self._messages: list[Message] = []
        self._turns: list[Record] = []
        self._observation_role: Any = "user"

    def add_message(self, role: str, content: Any) -> None:
        """A message that is no reply of the policy."""
        self._messages.append({"role": role, "content": content})

    def add_reply(self, own: Any, held: Record) -> None:
        """A reply of the policy."""
        if not isinstance(own, dict):
            raise DataError(
                f"reply {len(self._turns) + 1}: got {type(own).__name__} for its {OWN_KEY!r} fields, expected an object"
            )
        turn = {**own, **held, "step": len(self._turns) + 1, "num_prompt_messages": len(self._messages)}
        self._observation_role = turn.pop(_ROLE_KEY, "user")
        self._turns.append(turn | {"evidence_rank": None, "rank_score": 0.0})
        self.add_message("assistant", turn.get("raw_text"))

    def add_observation(self, content: Any) -> None:
        """The message that answered the last reply."""
        self.add_message(self._observation_role, content)

    def finish(self, **held: Any) -> Trajectory:
        """The trajectory, its ranks and rewards computed from the hits and the evidence. Raises DataError where a field is
        missing, unknown, or not what a table of trajectories holds. `held`: fields that the format itself holds, the id among
        them."""
        row = {**self._own, **held, "turns": self._turns, "messages": "", "question_rank": None}
        for name in ("id", "question_id"):
            read_name(row, name, required=True)
        row["turns"] = [_group(turn, schemas.TURN_PATHS, Turn) for turn in self._turns]
        try:
            messages = _MESSAGES.validate_python(self._messages)
            trajectory = _TRAJECTORY.validate_python(_group(row, schemas.PATHS, Trajectory))
        except ValidationError as error:
            raise DataError(explain(error)) from None
        trajectory = _rank(replace(trajectory, messages=json.dumps(messages, ensure_ascii=False)))
        try:
            schemas.to_table([trajectory], schemas.TRAJECTORIES)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise DataError(f"a value is not one that a table of trajectories holds ({error})") from None
        return trajectory


def _rank(trajectory: Trajectory) -> Trajectory:
    if not 1 <= trajectory.top_k <= trajectory.depth:
        raise DataError(f"top_k {trajectory.top_k} and depth {trajectory.depth}: expected 1 <= top_k <= depth")
    turns = []
    if trajectory.tools and not isinstance(_load(trajectory.tools), list):
        raise DataError(f"tools: got {trajectory.tools!r:.60}, expected the functions that the model was shown, as JSON")
    for turn in trajectory.turns:
        _check_ranking(turn.ranking.hits)
        if turn.action is ActionKind.TOOL and not (turn.call.tool and isinstance(_load(turn.call.arguments), dict)):
            raise DataError(
                f"turn {turn.step}: got arguments {turn.call.arguments!r:.60} of {turn.call.tool!r:.60}, expected a JSON object"
            )
        num_tokens, num_logprobs = len(turn.reply.completion_token_ids), len(turn.reply.completion_logprobs)
        if num_logprobs not in (0, num_tokens):
            raise DataError(f"turn {turn.step}: {num_logprobs} log-probabilities for {num_tokens} tokens")
        evidence = trajectory.evidence if turn.action is ActionKind.SEARCH else ()
        turns.append(replace(turn, ranking=score_ranking(turn.ranking, evidence, trajectory.top_k)))
    _check_ranking(trajectory.question_search.hits)
    asked = trajectory.question_search
    asked = replace(asked, rank=compute_evidence_rank(asked.hits, trajectory.evidence))
    return replace(trajectory, turns=tuple(turns), question_search=asked)


def _load(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return None


def _check_ranking(hits: Sequence[Hit]) -> None:
    for rank, hit in enumerate(hits, start=1):
        if hit.rank != rank or hit.page_number < 1:
            raise DataError(
                f"hits: got page {hit.page_number} at rank {hit.rank} in place {rank}, expected ranks and pages from 1"
            )


def _group(row: Record, paths: Mapping[str, str], record_type: type[Any]) -> Record:
    groups = {path.partition(".")[0] for path in paths.values()}
    names = (record_type.__dataclass_fields__.keys() - groups) | paths.keys()
    if unknown := row.keys() - names:
        raise DataError(f"unknown {OWN_KEY} field {min(map(str, unknown))!r:.60} of a {record_type.__name__.lower()}")
    if missing := names - row.keys():
        raise DataError(f"{min(missing)}: Field required")
    return schemas.group(row, paths, record_type)


def parse_record(data: bytes) -> Record:
    """The JSON object in `data`, in which no number is infinite or none. Raises DataError where it holds something else."""
    try:
        value = parse_json(data.decode("utf-8-sig"), parse_float=_to_finite, parse_constant=_to_finite)
    except json.JSONDecodeError as error:
        raise DataError(f"line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from None
    except UnicodeDecodeError as error:
        raise DataError(f"byte {error.start}: not UTF-8") from None
    if not isinstance(value, dict):
        raise DataError(f"got {type(value).__name__} {value!r:.60}, expected a JSON object")
    return value


def _to_finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise DataError(f"got the number {text:.20}, expected a finite one")
    return value


def explain(error: ValidationError) -> str:
    """The first thing that is wrong, with its place."""
    found = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, found['loc'])):.200}: {found['msg']}, got {found['input']!r:.80}"
