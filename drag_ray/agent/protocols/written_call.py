"""A function call as it stands in a reply, in the form that is asked for and in those that models fall back to, and its JSON."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drag_ray.agent.protocols import Action
from drag_ray.corpus.text import to_encodable
from drag_ray.engine.generate import split_reasoning
from drag_ray.tools.function import Function
from drag_ray.types import ActionKind

_DECODER = json.JSONDecoder(strict=False)
_TEXT_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+\\?(?:"|\Z)|[\[\]{}]', re.DOTALL)
_ENDS = ('"', "}", "]")
"""After anything else it is not known whether the last value is whole: 12 may be the beginning of 123."""


def decode_first(text: str) -> tuple[Any, str]:
    """The value at the start of a text, and what follows it, in linear time.

    Brackets that the end of the text lacks are added, where it ends with another bracket or a text. Raises ValueError where there
    is none, or it is nested too deeply.
    """
    text = text.strip()
    try:
        try:
            value, end = _DECODER.raw_decode(text)
        except ValueError:
            if not text.endswith(_ENDS):
                raise
            value, end = _DECODER.raw_decode(text + _list_missing_brackets(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value, text[end:].strip()


def read_object(reply: str) -> dict[str, Any] | None:
    """The object of a reply that is, after its reasoning, one JSON object, fenced or not; None for any other reply."""
    rest = (split_reasoning(reply)[1] or "").strip()
    try:
        said, more = decode_first(rest.removeprefix("```").removeprefix("json").removesuffix("```"))
    except ValueError:
        return None
    return said if isinstance(said, dict) and not more else None


def _list_missing_brackets(text: str) -> str:
    missing: list[str] = []
    for part in _TEXT_OR_BRACKET.findall(text):
        if part in ("{", "["):
            missing.append("}" if part == "{" else "]")
        elif missing and part == missing[-1]:
            missing.pop()
    return "".join(reversed(missing))


_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FENCED = re.compile(r"```(?:json|tool_call)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_MAX_TEXT_CHARS = 400
"""of a text in a call that is drawn in its form: a model that never ends it would go on to the end of its reply"""


class CallError(ValueError):
    """A call that cannot be carried out; the message is for the model."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A function's name and its arguments, and where in the text the call begins."""

    name: Any
    arguments: dict[str, Any]
    start: int


def find_call(text: str) -> WrittenCall:
    """The first call in a text.

    It is read from `<tool_call>`, also where that is not closed, fenced within, or followed by more; without one from a fenced
    block or a whole text that is a JSON object with a name and arguments. The JSON is read as `decode_first` does. Raises
    CallError where there is none.
    """
    tagged = _TAGGED.search(text)
    if tagged:
        fenced = _FENCED.search(tagged[1])
        call = _read_object((fenced or tagged)[1], "the call" if tagged[0].endswith("</tool_call>") else "")
        if call is None:
            raise CallError("<tool_call> is not closed")
        return _to_call(call, tagged.start())
    for found in (*_FENCED.finditer(text), re.match(r"\s*(?=\{)(.*)", text, re.DOTALL)):
        call = _read_object(found[1], "") if found else None
        if found and call and "name" in call and call.keys() & {"arguments", "parameters"}:
            return _to_call(call, found.start())
    raise CallError("no <tool_call> in the reply")


def render_call(name: str, arguments: dict[str, Any]) -> str:
    """A call in the form that is asked for."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def build_call_form(functions: Sequence[dict[str, Any]]) -> str:
    """The form of one call, in which an engine can draw a reply: a structural tag of xgrammar, which vLLM takes, as JSON.
    `functions`: in OpenAI's form."""
    calls = [_build_form(described["function"]) for described in functions]
    return json.dumps({"type": "structural_tag", "format": {"type": "or", "elements": calls}})


def _build_form(function: dict[str, Any]) -> dict[str, Any]:
    begin, end = render_call(function["name"], {}).split("{}")
    arguments = {"type": "json_schema", "json_schema": _limit_texts(function["parameters"]), "max_whitespace_cnt": 1}
    return {"type": "tag", "begin": begin, "content": arguments, "end": end}


def _limit_texts(schema: Any) -> Any:
    """A JSON schema whose texts are limited that have no limit, and no form, of their own."""
    if isinstance(schema, list):
        return [_limit_texts(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    limited = {name: _limit_texts(part) for name, part in schema.items()}
    if schema.get("type") == "string" and not schema.keys() & {"maxLength", "enum", "const", "pattern", "format"}:
        limited["maxLength"] = _MAX_TEXT_CHARS
    return limited


def read_tool_call(call: WrittenCall, reasoning: str, functions: Sequence[Function]) -> Action:
    """The action of a call of a tool. Raises CallError where there is no such function, or its arguments cannot be written
    down."""
    if all(function.name != call.name for function in functions):
        raise CallError(f"there is no function {str(call.name)[:80]!r}")
    return Action(ActionKind.TOOL, reasoning, tool=call.name, arguments=_write_arguments(call.arguments))


def _write_arguments(arguments: dict[str, Any]) -> str:
    """Arguments as JSON, without what no table can hold. Raises CallError where they are nested too deeply, or hold NaN or an
    infinite number, which JSON does not have."""
    try:
        return to_encodable(json.dumps(arguments, ensure_ascii=False, allow_nan=False))
    except ValueError:
        raise CallError("arguments contains a value that is not a number") from None
    except RecursionError:
        raise CallError("arguments is nested too deeply") from None


def _to_call(call: dict[str, Any], start: int) -> WrittenCall:
    arguments = call.get("arguments", call.get("parameters", {}))
    if isinstance(arguments, str):  # OpenAI's form of the same
        arguments = _read_object(arguments, "arguments")
    if not isinstance(arguments, dict):
        raise CallError("arguments is not a JSON object")
    return WrittenCall(call.get("name"), arguments, start)


def _read_object(text: str, what: str) -> dict[str, Any] | None:
    """The JSON object at the start of a text, whatever follows it. Raises CallError where there is none, and `what` says what it
    ought to be; None without it."""
    try:
        value, _ = decode_first(text)
    except ValueError:
        if not what:
            return None
        raise CallError(f"{what} is not JSON") from None
    if isinstance(value, dict):
        return value
    if not what:
        return None
    raise CallError(f"{what} is not a JSON object")
