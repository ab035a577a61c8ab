"""Limits of one request, checked before vLLM sees it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from drag_ray.errors import BudgetError, ServeError
from drag_ray.serve.config import ServeConfig
from drag_ray.storage.json_text import parse_json

ENGINE_HAS_DIED = "the engine has died; another one is starting. Ask again after the seconds of Retry-After."
_MIB = 2**20
_MAX_NAMES = 20
"""Models that a refusal names; an endpoint may have any number."""
_REPLY_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""What the routes call the length of a reply."""
_MAX_VALUES = 10_000
"""in a request, but for the ids of its tokens. vLLM says of each what is wrong with it, or writes a prompt of them, and all else
waits meanwhile."""
_MAX_ITEMS = 1_000
"""of `input`: what is wrong with one can be two hundred things, and of 100,000 they took the memory that there was."""
_TEXTS = {"messages", "input", "instructions", "prompt", "tools", "documents"}
"""What a model reads: it has to fit its context."""
_MEDIA = {"image_url", "video_url", "audio_url", "input_audio"}
_MAX_MEDIA = 32
"""All of a request are decoded before anything else is done with them, and a small file can be a large picture."""
_MAX_BESIDE_BYTES = 2**16
"""of what a request says beside these, such as words to avoid and schemas, of which grammars are made one after the other."""
_FREE_FORMS = ("text", "json_object")
"""What replies may be bound to for nothing: any text, any JSON."""
_MAX_CUT_BYTES = 2**20
"""of a request whose prompt is to be cut: all of it is split into tokens first, while others wait."""


class RefusalError(ServeError):
    """A request is answered with this status, message and headers, and goes no further."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(status, message)
        self.status, self.message, self.headers = status, message, dict(headers)

    def __str__(self) -> str:
        return self.message


def refuse_unknown_model(name: str, served: Iterable[str]) -> RefusalError:
    """The refusal (404) of a request to an unknown model."""
    names = list(served)
    more = f" and {len(names) - _MAX_NAMES} more (GET /v1/models)" if len(names) > _MAX_NAMES else ""
    listed = ", ".join(repr(name) for name in names[:_MAX_NAMES])
    return RefusalError(404, f"the model {name[:80]!r} does not exist here, expected one of {listed}{more}.")


@dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    config: ServeConfig
    allows_prompt_logprobs: bool = True

    def check_size(self, num_bytes: int) -> None:
        """Refuse a request of so many bytes. Raises RefusalError: it is too large."""
        if num_bytes > self.config.max_body_mib * _MIB:
            raise RefusalError(413, f"the request is larger than serve.max_body_mib, {self.config.max_body_mib:g} MiB.")

    def check_question(self, question: str) -> None:
        """Refuse a question of so many characters. Raises RefusalError: it is too long."""
        if len(question) > self.config.max_question_chars:
            raise RefusalError(
                400,
                f"the question has {len(question)} characters; the endpoint allows {self.config.max_question_chars} "
                "(serve.max_question_chars).",
            )

    @asynccontextmanager
    async def limit_reply(self) -> AsyncGenerator[None]:
        """Give a reply no more than its time. Raises BudgetError: it took longer. This ends the whole rollout."""
        try:
            async with asyncio.timeout(self.config.max_reply_s):
                yield
        except TimeoutError:
            raise BudgetError(
                f"a reply of the model took longer than serve.max_reply_s, {self.config.max_reply_s:g} s. Send a shorter "
                "question, or try again when the endpoint is less busy."
            ) from None

    def check_values(self, body: dict[str, Any]) -> None:
        """Refuse a request that holds more values or images than anybody means. Raises RefusalError, which says how many there
        may be."""
        num_values = num_media = 0
        pending: list[Any] = [{**body, "prompt": None}]
        while pending:
            value = pending.pop()
            if isinstance(value, (dict, list)):
                num_values += len(value)  # pyright: ignore[reportUnknownArgumentType]
                if num_values > _MAX_VALUES:
                    raise RefusalError(400, f"the request holds more than {_MAX_VALUES:,} values, which is too many.")
                num_media += len(_MEDIA & value.keys()) if isinstance(value, dict) else 0
                pending.extend(value.values() if isinstance(value, dict) else value)  # pyright: ignore[reportUnknownArgumentType]
        if num_media > _MAX_MEDIA:
            raise RefusalError(400, f"the request holds {num_media} images; the endpoint allows {_MAX_MEDIA}.")

    def check_generation(self, body: dict[str, Any]) -> None:
        """Refuse a request for more or longer replies, or that would hold up the others, in the spelling of any of the three
        routes that generate. Raises RefusalError, which names what was asked for and the limit."""
        grammars = _list_grammars(body)
        if grammars and not self.config.grammars:
            raise RefusalError(400, f"{grammars[0]}: the endpoint allows no constrained replies except JSON (serve.grammars).")
        if not self.allows_prompt_logprobs and _asks_prompt_logprobs(body):
            raise RefusalError(
                400,
                "prompt_logprobs, echo: on a CPU the endpoint gives no log-probabilities of a prompt's own tokens. Ask for a "
                "single reply token among allowed_token_ids, with logprobs.",
            )
        _check_sizes(body, _TEXTS - set(grammars))
        for name in _REPLY_TOKENS:
            tokens = _read_count(body, name, default=0)
            if tokens > self.config.max_tokens:
                raise RefusalError(400, f"{name} is {tokens}; the endpoint allows {self.config.max_tokens} (serve.max_tokens).")
        replies = max(_read_count(body, name, default=1) for name in ("n", "best_of"))
        prompts = _count_prompts(body.get("prompt"))
        if replies * prompts > self.config.max_sequences:
            raise RefusalError(
                400,
                f"{replies} replies to each of {prompts} prompts were asked for; "
                f"the endpoint allows {self.config.max_sequences} in all (serve.max_sequences).",
            )
        _check_tokens(body.get("prompt"))


def parse_body(body: bytes) -> dict[str, Any]:
    """The JSON object that a request holds. Raises RefusalError: it holds none."""
    try:
        parsed = parse_json(body)
    except ValueError as error:
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


def _check_tokens(prompt: Any) -> None:
    """Refuse other values in lists of token ids: errors would name each."""
    if not isinstance(prompt, list):
        return
    lists = [part for part in prompt if isinstance(part, list)] if _is_list_of_prompts(prompt) else [prompt]
    if not all(type(token) is int and token >= 0 for ids in lists for token in ids):
        raise RefusalError(400, "prompt: a list of ids of tokens holds something else.")


def _list_grammars(body: dict[str, Any]) -> list[str]:
    """The fields that bind replies to forms of the request's, of which vLLM makes grammars."""
    forms = {"response_format": body.get("response_format"), "text": _get(body.get("text"), "format")}
    found = [name for name, form in forms.items() if form is not None and _get(form, "type") not in _FREE_FORMS]
    found += ["structured_outputs"] if body.get("structured_outputs") is not None else []
    tools = body["tools"] if isinstance(body.get("tools"), list) else []
    is_strict = any(_get(tool, "strict") or _get(_get(tool, "function"), "strict") for tool in tools)
    return [*found, "tools"] if is_strict or body.get("tool_choice") not in (None, "auto", "none") else found


def _asks_prompt_logprobs(body: dict[str, Any]) -> bool:
    """vLLM reads `echo` as asking for them too: always of a chat, else with `logprobs`."""
    is_echoed = body.get("echo") and ("messages" in body or body.get("logprobs") is not None)
    return body.get("prompt_logprobs") is not None or bool(is_echoed)


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _check_sizes(body: dict[str, Any], texts: set[str]) -> None:
    beside = {name: value for name, value in body.items() if name not in texts}
    if (num_bytes := len(json.dumps(beside))) > _MAX_BESIDE_BYTES:
        name = max(beside, key=lambda name: len(json.dumps(beside[name])))
        allowed = f"{num_bytes:,} bytes apart from the texts of the request; the endpoint allows {_MAX_BESIDE_BYTES:,}"
        raise RefusalError(400, f"{name[:80]}, and what else: {allowed}.")
    items = body.get("input")
    if isinstance(items, list) and len(items) > _MAX_ITEMS:
        raise RefusalError(400, f"input has {len(items):,} items; the endpoint allows {_MAX_ITEMS:,}.")
    is_cut = body.get("truncate_prompt_tokens") is not None or body.get("truncation") not in (None, "disabled")
    if is_cut and len(json.dumps(body)) > _MAX_CUT_BYTES:
        raise RefusalError(400, f"a request whose prompt is to be cut may have {_MAX_CUT_BYTES:,} bytes; cut it beforehand.")


def _count_prompts(prompt: Any) -> int:
    """The number of prompts: 1 for a text or a list of token ids, else the length of the list."""
    return len(prompt) if isinstance(prompt, list) and _is_list_of_prompts(prompt) else 1


def _is_list_of_prompts(prompt: list[Any]) -> bool:
    return not all(isinstance(part, int) for part in prompt)
