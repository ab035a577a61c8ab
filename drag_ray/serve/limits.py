"""What one request may take, checked before vLLM sees it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from drag_ray.errors import ServeError

ENGINE_HAS_DIED = "the engine has died; another one is starting. Ask again after the seconds of Retry-After."
_MIB = 2**20
_MAX_NAMES = 20
"""Models that a refusal names; an endpoint may have any number."""
_REPLY_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""What the routes call the length of a reply."""


class RefusalError(ServeError):
    """A request is answered with this status, message and headers, and goes no further."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(status, message)
        self.status, self.message, self.headers = status, message, dict(headers)

    def __str__(self) -> str:
        return self.message


def refuse_unknown_model(name: str, served: Iterable[str]) -> RefusalError:
    """What a request to a model that is not there is answered with.

    Args:
        name: as the request has it.
        served: the names of those that are.
    """
    names = list(served)
    more = f" and {len(names) - _MAX_NAMES} more (GET /v1/models)" if len(names) > _MAX_NAMES else ""
    listed = ", ".join(repr(name) for name in names[:_MAX_NAMES])
    return RefusalError(404, f"the model {name[:80]!r} does not exist here, expected one of {listed}{more}.")


@dataclass(frozen=True)
class Limits:
    """What one request may take. The numbers are those of `ServeConfig`."""

    max_body_mib: float
    max_tokens: int
    max_sequences: int
    max_question_chars: int

    def check_size(self, num_bytes: int) -> None:
        """Refuse a request of so many bytes.

        Raises:
            RefusalError: it is too large.
        """
        if num_bytes > self.max_body_mib * _MIB:
            raise RefusalError(413, f"the request is larger than serve.max_body_mib, {self.max_body_mib:g} MiB.")

    def check_question(self, question: str) -> None:
        """Refuse a question of so many characters.

        Raises:
            RefusalError: it is too long.
        """
        if len(question) > self.max_question_chars:
            raise RefusalError(
                400,
                f"the question has {len(question)} characters; the endpoint allows {self.max_question_chars} "
                "(serve.max_question_chars).",
            )

    def check_generation(self, body: dict[str, Any]) -> None:
        """Refuse a request for more or longer replies, in the spelling of any of the three routes that generate.

        Raises:
            RefusalError: names what was asked for and the limit.
        """
        for name in _REPLY_TOKENS:
            tokens = _read_count(body, name, default=0)
            if tokens > self.max_tokens:
                raise RefusalError(400, f"{name} is {tokens}; the endpoint allows {self.max_tokens} (serve.max_tokens).")
        replies = max(_read_count(body, name, default=1) for name in ("n", "best_of"))
        prompts = _count_prompts(body.get("prompt"))
        if replies * prompts > self.max_sequences:
            raise RefusalError(
                400,
                f"{replies} replies to each of {prompts} prompts were asked for; "
                f"the endpoint allows {self.max_sequences} in all (serve.max_sequences).",
            )


def parse_body(body: bytes) -> dict[str, Any]:
    """The JSON object that a request holds.

    Raises:
        RefusalError: it holds none.
    """
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusalError(400, f"the request is not JSON ({error}).") from None
    if not isinstance(parsed, dict):
        raise RefusalError(400, f"the request is a JSON {type(parsed).__name__}; an object was expected.")
    return parsed


def _read_count(body: dict[str, Any], name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int:  # vLLM reads "16" and 16.0 as 16
        raise RefusalError(400, f"{name} must be an integer, got {str(value)[:40]!r}.")
    return value


def _count_prompts(prompt: Any) -> int:
    """A text is one prompt, and so is a list of token ids; a list of these is as many as it holds."""
    is_list_of_prompts = isinstance(prompt, list) and not all(isinstance(part, int) for part in prompt)
    return len(prompt) if is_list_of_prompts else 1
