"""Generation by an OpenAI-compatible endpoint, through the `openai` client, which retries temporary refusals.

How the chat template behind an endpoint shows functions is not known, so they are written into the conversation in the form of
the templates of Hermes and Qwen: a model behind an endpoint is shown what one of these is here, and writes its calls in the same
way. OpenAI's own `tools` are not used: they would hide what the model wrote, and take no images.
"""

import asyncio
import base64
import io
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drag_ray.engine.config import EndpointConfig, EngineConfig
from drag_ray.engine.endpoints.completion import UNSAID, Completion
from drag_ray.engine.endpoints.spending import Spending
from drag_ray.engine.generate import Generation, ImageSource, Message, Request, Usage, join_text, list_images, render_reasoning
from drag_ray.errors import AnswerError, ConfigError, PromptTooLongError, RolloutError

_logger = logging.getLogger(__name__)

_FUNCTIONS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{functions}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
_OPENED, _CLOSED = "<tool_response>\n", "\n</tool_response>"


def write_functions(messages: Sequence[Message], functions: Sequence[dict[str, Any]]) -> list[Message]:
    """A conversation whose system prompt shows the functions, and in which the user tells what a call returned.

    Args:
        messages: the first one is the system prompt, a text, if there is one.
        functions: in OpenAI's form; without any the messages stay as they are.
    """
    if not functions:
        return list(messages)
    has_system = bool(messages) and messages[0]["role"] == "system"
    system = messages[0]["content"] if has_system else ""
    shown = _FUNCTIONS.format(functions="\n".join(json.dumps(function, ensure_ascii=False) for function in functions))
    opening = {"role": "system", "content": f"{system}\n\n{shown}" if system else shown}
    return [opening, *map(_tell_response, messages[has_system:])]


def _tell_response(message: Message) -> Message:
    if message["role"] != "tool":
        return message
    content = message["content"]
    if isinstance(content, str):
        return {"role": "user", "content": f"{_OPENED}{content}{_CLOSED}"}
    return {"role": "user", "content": [{"type": "text", "text": _OPENED}, *content, {"type": "text", "text": _CLOSED}]}


_NO_KEY = "none"
"""The client wants some key, also for an endpoint that wants none."""
_TOO_LONG = ("context_length_exceeded", "maximum context length", "max_model_len")
"""What endpoints say of a prompt that is too long; the status, 400, is that of any wrong request."""
_MAX_ANSWER_BYTES = 16 * 2**20
"""of an answer, unpacked: some hundred times the longest reply"""
_MAX_ERROR_CHARS = 500
_LENGTHS = ("max_tokens", "max_completion_tokens")
"""Parameters that say how long a reply may be."""
_TOKEN_BYTES, _IMAGE_TOKENS = 3, 1500
"""What a token of a prompt has at least on average, and an image at most, where the endpoint does not say what it read."""


class EndpointEngine:
    """A model behind an endpoint, as `GenerateFn`. It gives no token ids and no log-probabilities, only their number.

    Functions are shown to it in the system prompt (`write_functions`). Raises ConfigError where the environment variable of the
    key is not set here.
    """

    def __init__(self, config: EngineConfig, images: ImageSource | None, spending: Spending) -> None:
        from openai import AsyncOpenAI

        from drag_ray.engine.endpoints.rate_limit import RatedClient, RateLimit

        endpoint = config.endpoint
        self._key = _read_key(endpoint)
        self._rate_limit = RateLimit(endpoint.requests_per_minute, endpoint.tokens_per_minute)
        self._client = AsyncOpenAI(
            api_key=self._key,
            base_url=endpoint.address,
            max_retries=endpoint.max_retries,
            http_client=RatedClient(self._rate_limit, _MAX_ANSWER_BYTES, endpoint.timeout_s),
        )
        self._config = config
        self._images = images
        self._spending = spending
        self._has_estimated = False
        self._slots = asyncio.Semaphore(endpoint.max_requests)

    async def __call__(self, request: Request) -> Generation:
        messages = write_functions(request.messages, request.tools)
        parameters = self._build_parameters(request)
        estimate = _estimate_usage(messages, [parameters.get(name) for name in _LENGTHS], request.max_tokens)
        written = await asyncio.to_thread(self._write_messages, messages)
        async with self._slots:
            self._spending.check()
            try:
                completion = Completion(await self._ask(written, parameters))
            except AnswerError as error:
                self._note(estimate, estimated=True)
                raise RolloutError(f"{self._config.endpoint.address} gave {error}") from error
        usage = completion.read_usage()
        self._note(usage or estimate, estimated=usage is None)
        try:
            return _to_generation(completion, usage, request.stop)
        except RolloutError as error:
            raise RolloutError(f"{self._config.endpoint.address} gave {self._hide_key(str(error))}") from None

    def _note(self, usage: Usage, *, estimated: bool) -> None:
        """Note what a reply has cost, before anything of it is read."""
        if estimated and not self._has_estimated:
            _logger.warning(
                f"{self._config.endpoint.address}: answers without their tokens are counted, the first one as {usage}"
            )
            self._has_estimated = True
        self._spending.add(usage, estimated=estimated)
        self._rate_limit.spend(usage.num_prompt_tokens + usage.num_completion_tokens)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _build_parameters(self, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        has_seed = self._config.seeds and sampling.temperature > 0
        parameters = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": request.max_tokens,
            **({"stop": list(request.stop)} if request.stop else {}),
            **({"seed": request.seed} if has_seed else {}),
            # vLLM's and others', not OpenAI's own.
            **({"repetition_penalty": sampling.repetition_penalty} if sampling.repetition_penalty != 1 else {}),
        }
        endpoint = self._config.endpoint
        return {name: value for name, value in parameters.items() if name not in endpoint.omits} | endpoint.parameters

    async def _ask(self, messages: list[dict[str, Any]], parameters: dict[str, Any]) -> bytes:
        """The endpoint's answer. Raises its errors as our own, and AnswerErrors."""
        import httpx2
        from openai import APIStatusError, OpenAIError

        address = self._config.endpoint.address
        body = {"model": self._config.model, "messages": messages, **parameters}
        try:
            return (await self._client.post("/chat/completions", body=body, cast_to=httpx2.Response)).content
        except APIStatusError as error:
            said = self._hide_key(error.message)[:_MAX_ERROR_CHARS]
            if error.status_code == 400 and any(words in str(error) for words in _TOO_LONG):
                raise PromptTooLongError(f"{address} refuses the prompt: {said}") from None
            if error.response.has_redirect_location:
                target = error.response.headers["location"][:_MAX_ERROR_CHARS]
                said = f"a redirect to {target!r}, which no prompt is sent to. If it is the right address, name that"
            raise RolloutError(f"{address} answered {error.status_code}: {said}") from None
        except OpenAIError as error:
            tries, cause = self._config.endpoint.max_retries + 1, error.__cause__ or error
            raise RolloutError(f"{address} did not answer in {tries} tries ({type(cause).__name__}: {cause})") from error

    def _hide_key(self, said: str) -> str:
        """The endpoint's message without the key that it may repeat."""
        return said.replace(self._key, "[key]") if self._key != _NO_KEY else said

    def _write_messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        return [{**message, "content": self._write_content(message["content"])} for message in messages]

    def _write_content(self, content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """Text, or parts of which images are data URLs."""
        if isinstance(content, str):
            return content
        return [
            {"type": "image_url", "image_url": {"url": self._encode_image(part["image"])}} if part["type"] == "image" else part
            for part in content
        ]

    def _encode_image(self, key: str) -> str:
        if self._images is None:
            raise ConfigError("the prompt holds images, but the engine was started for text only.")
        data = io.BytesIO()
        self._images.open(key).save(data, "PNG")
        return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"


def build_endpoint_engine(
    spending_path: Path, config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]
) -> EndpointEngine:
    """The engine of a worker, which takes no adapters; what its replies cost is kept in a file."""
    assert not adapters, "an endpoint takes no adapter"
    return EndpointEngine(config, images, Spending(spending_path, config.endpoint))


def _read_key(endpoint: EndpointConfig) -> str:
    if not endpoint.key_variable:
        return _NO_KEY
    key = os.environ.get(endpoint.key_variable, "")
    if not key:
        raise ConfigError(
            f"endpoint.key_variable {endpoint.key_variable!r}: not set, or empty, in the process that asks {endpoint.address}. "
            "Set it before the command, and on a cluster before `ray start` on each node."
        )
    return key


def _estimate_usage(messages: Sequence[Message], lengths: Sequence[Any], max_tokens: int) -> Usage:
    """The tokens of a reply of which the endpoint does not say how many they were: rather too many, so that a budget holds.

    Args:
        messages: the prompt.
        lengths: what the request says of the longest reply, if anything.
        max_tokens: of a reply of which it says nothing.
    """
    num_bytes = sum(len(join_text(message).encode()) for message in messages)
    longest = max((length for length in lengths if isinstance(length, int)), default=max_tokens)
    return Usage(num_bytes // _TOKEN_BYTES + _IMAGE_TOKENS * len(list_images(messages)) + 1, longest)


def _to_generation(completion: Completion, usage: Usage | None, stops: Sequence[str]) -> Generation:
    """The reply of an answer, with its reasoning as a model writes it. Raises RolloutError where there is none, or no usage."""
    reply = completion.read_reply()
    if usage is None:
        raise RolloutError("a reply without the number of its tokens (`usage`, whole and not negative)")
    if reply.finish_reason not in ("stop", "length"):
        raise RolloutError(f"a reply that ended with {reply.finish_reason!r}, expected stop or length")
    is_ended = reply.finish_reason == "stop"
    return Generation(
        text=render_reasoning(reply.reasoning) + (restore_stop(reply.text, stops, reply.stop_reason) if is_ended else reply.text),
        prompt_token_ids=(),
        completion_token_ids=(),
        finish_reason=reply.finish_reason,
        reported_usage=usage,
    )


def restore_stop(text: str, stops: Sequence[str], stop_reason: object = UNSAID) -> str:
    """A reply with the stop string that ended it, which endpoints leave away.

    Args:
        text: a reply that did not end for its length.
        stops: closing tags.
        stop_reason: vLLM's word for which of them it was; none of them where that is no string: the model ended its turn by
            itself. Of endpoints that say nothing it is that of the tag that is open: the two cannot be told apart there.
    """
    if stop_reason is not UNSAID:
        return text + stop_reason if isinstance(stop_reason, str) else text
    opened = {stop: text.rfind(stop.replace("</", "<", 1)) for stop in stops}
    last = max(opened, key=lambda stop: opened[stop], default="")
    is_open = bool(last) and opened[last] >= 0 and last not in text[opened[last] :]
    return text + last if is_open else text
