"""The answer of an endpoint to a request for chat completions, of which nothing is taken that was not checked.

Endpoints answer in more forms than OpenAI's: content in parts (https://docs.mistral.ai/capabilities/reasoning), reasoning in a
field of its own, HTML from a gateway, or half an answer.
"""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drag_ray.corpus.text import to_encodable
from drag_ray.engine.generate import Usage
from drag_ray.errors import RolloutError
from drag_ray.storage.json_text import parse_json

MAX_TOKENS = 100_000_000
"""of a prompt or a reply; a larger number is a mistake"""
UNSAID = object()
"""In place of vLLM's `stop_reason` where an endpoint has no such field."""
_SHOWN_CHARS = 200
Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class _TextPart(_Checked):
    type: Literal["text"]
    text: str


class _ThinkingPart(_Checked):
    type: Literal["thinking"]
    thinking: str | list[_TextPart]


class _Message(_Checked):
    content: str | list[Annotated[_TextPart | _ThinkingPart, Field(discriminator="type")]] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    """the older of vLLM's two names for it"""
    tool_calls: list[Any] | None = None


class _Choice(_Checked):
    message: _Message
    finish_reason: str | None = None
    stop_reason: Any = UNSAID


class _Usage(_Checked):
    prompt_tokens: Tokens
    completion_tokens: Tokens


class _Completion(_Checked):
    choices: list[_Choice] = Field(min_length=1)


class _Bill(_Checked):
    usage: _Usage


class Reply(NamedTuple):
    """A reply with its reasoning, and why it ended, as the endpoint says. `stop_reason`: vLLM's word for the string that ended
    it; `UNSAID` where there is none."""

    text: str
    reasoning: str
    finish_reason: str
    stop_reason: Any


class Completion:
    """An answer with status 200."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        try:
            self._value: Any = parse_json(body)
        except ValueError as error:
            self._value, self._problem = None, f"no JSON ({error})"
        else:
            self._problem = ""

    def read_usage(self) -> Usage | None:
        """The tokens that it says were read and written; None where it says nothing that can be so."""
        try:
            usage = _Bill.model_validate(self._value).usage
        except ValidationError:
            return None
        return Usage(usage.prompt_tokens, usage.completion_tokens)

    def read_reply(self) -> Reply:
        """The first reply. Raises RolloutError where there is none, it calls functions in the endpoint's own way, or this is no
        chat completion."""
        if self._problem:
            raise RolloutError(f"{self._problem}, which begins {self._body[:_SHOWN_CHARS]!r}")
        try:
            choice = _Completion.model_validate(self._value).choices[0]
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(map(str, first["loc"]))[:_SHOWN_CHARS]
            raise RolloutError(f"no chat completion: {place or 'the whole'}: {first['msg'][:_SHOWN_CHARS]}") from None
        message = choice.message
        if message.tool_calls:
            raise RolloutError("function calls of the endpoint's own, which hide what the model wrote. Turn that off there")
        parts = [_TextPart(type="text", text=message.content)] if isinstance(message.content, str) else message.content or []
        thoughts = [part.thinking for part in parts if isinstance(part, _ThinkingPart)]
        reasoning = message.reasoning or message.reasoning_content or "".join(map(_join, thoughts))
        text = _join([part for part in parts if isinstance(part, _TextPart)])
        return Reply(to_encodable(text), to_encodable(reasoning), choice.finish_reason or "", choice.stop_reason)


def _join(thought: str | list[_TextPart]) -> str:
    return thought if isinstance(thought, str) else "".join(part.text for part in thought)
