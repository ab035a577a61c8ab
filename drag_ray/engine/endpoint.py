"""Generation by an OpenAI-compatible endpoint, through the `openai` client, which repeats what was refused for a while."""

import asyncio
import base64
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drag_ray.engine.config import EndpointConfig, EngineConfig
from drag_ray.engine.generate import Generation, ImageSource, Message, Request, Usage
from drag_ray.engine.rate_limit import RateLimit
from drag_ray.engine.reasoning import render_reasoning
from drag_ray.engine.spending import Spending
from drag_ray.engine.written_functions import write_functions
from drag_ray.errors import ConfigError, PromptTooLongError, RolloutError

_NO_KEY = "none"
"""The client wants some key, also for an endpoint that wants none."""
_TOO_LONG = ("context_length_exceeded", "maximum context length", "max_model_len")
"""What endpoints say of a prompt that is too long; the status, 400, is that of any wrong request."""
UNSAID = object()
"""In place of vLLM's `stop_reason` where an endpoint has no such field."""


class EndpointEngine:
    """A model behind an endpoint, as `GenerateFn`. It gives no token ids and no log-probabilities, only their number.

    Functions are shown to it in the system prompt (`written_functions`).

    Args:
        config: the endpoint, the model's name there, and whether requests carry seeds.
        images: where the images of prompts come from; None for prompts of text alone.
        spending: what replies cost, and may cost.

    Raises:
        ConfigError: the environment variable of the key is not set here.
    """

    def __init__(self, config: EngineConfig, images: ImageSource | None, spending: Spending) -> None:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        endpoint = config.endpoint
        self._rate_limit = RateLimit(endpoint.requests_per_minute, endpoint.tokens_per_minute)
        self._client = AsyncOpenAI(
            api_key=_read_key(endpoint),
            base_url=endpoint.address,
            timeout=endpoint.timeout_s,
            max_retries=endpoint.max_retries,
            http_client=DefaultAsyncHttpxClient(
                event_hooks={"request": [self._rate_limit.wait], "response": [self._rate_limit.note]}
            ),
        )
        self._config = config
        self._images = images
        self._spending = spending
        self._slots = asyncio.Semaphore(endpoint.max_requests)

    async def __call__(self, request: Request) -> Generation:
        messages = await asyncio.to_thread(self._write_messages, write_functions(request.messages, request.tools))
        async with self._slots:
            self._spending.check()
            completion = await self._ask(messages, self._build_parameters(request))
        generation = _to_generation(completion, request.stop)
        self._spending.add(generation.usage)
        self._rate_limit.spend(generation.usage.num_prompt_tokens + generation.usage.num_completion_tokens)
        return _refuse_withheld(generation)

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

    async def _ask(self, messages: list[dict[str, Any]], parameters: dict[str, Any]) -> Any:
        """The endpoint's `ChatCompletion`. Raises its errors as our own."""
        from openai import APIConnectionError, APIStatusError

        address = self._config.endpoint.address
        ask: Any = self._client.chat.completions.create
        try:
            return await ask(model=self._config.model, messages=messages, extra_body=parameters)
        except APIStatusError as error:
            if error.status_code == 400 and any(words in str(error) for words in _TOO_LONG):
                raise PromptTooLongError(f"{address} refuses the prompt: {error.message}") from error
            raise RolloutError(f"{address} answered {error.status_code}: {error.message}") from error
        except APIConnectionError as error:
            tries = self._config.endpoint.max_retries + 1
            raise RolloutError(f"{address} did not answer in {tries} tries: {error.__cause__ or error}") from error

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
            raise ConfigError("the prompt holds images, but the engine was made for text alone.")
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


def _to_generation(completion: Any, stops: Sequence[str]) -> Generation:
    """The reply of a `ChatCompletion`, with its reasoning as a model writes it."""
    if not completion.choices or completion.usage is None:
        raise RolloutError("the endpoint answered without a reply, or without the number of its tokens (`usage`)")
    choice = completion.choices[0]
    message = choice.message
    text = message.content or ""
    if choice.finish_reason == "stop":
        text = restore_stop(text, stops, (choice.model_extra or {}).get("stop_reason", UNSAID))
    # vLLM has had two names for it.
    reasoning = getattr(message, "reasoning", None) or getattr(message, "reasoning_content", None) or ""
    return Generation(
        text=render_reasoning(reasoning) + text,
        prompt_token_ids=(),
        completion_token_ids=(),
        finish_reason=choice.finish_reason or "",
        reported_usage=Usage(completion.usage.prompt_tokens, completion.usage.completion_tokens),
    )


def _refuse_withheld(generation: Generation) -> Generation:
    if generation.finish_reason not in ("stop", "length"):
        raise RolloutError(f"the endpoint ended its reply with {generation.finish_reason!r}, expected stop or length")
    return generation


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
