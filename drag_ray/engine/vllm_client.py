"""Draws the agent's replies from an engine of vLLM that runs already: one of a collection, or the endpoint's own."""

import asyncio
import contextlib
import itertools
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import THINK, Generation, Request, compute_prompt_digest, list_images
from drag_ray.engine.image_inputs import ImageInputs, ServedImageInputs
from drag_ray.engine.models.tokens import disarm
from drag_ray.errors import ConfigError, EngineDiedError, PromptTooLongError, RolloutError

_RENDERING_THREADS = 2
"""Prompts that are tokenized at the same time, beside the event loop: with a small model that would be a fifth of its work."""


class VllmClient:
    """Turns requests into vLLM's prompts, and vLLM's outputs into replies. Raises ConfigError where the model has no chat
    template, so there is no way to write a conversation for it."""

    def __init__(self, engine: Any, config: EngineConfig, image_inputs: ImageInputs | ServedImageInputs | None = None) -> None:
        self._engine = engine
        self._image_inputs = image_inputs
        self._tokenizer: Any = engine.get_tokenizer()
        self._rendering = ThreadPoolExecutor(_RENDERING_THREADS, "render")
        self._max_model_len = config.max_model_len
        self.reply_as(config)
        self._request_numbers = itertools.count()
        if not getattr(self._tokenizer, "chat_template", None):
            raise ConfigError(f"engine.model {config.model!r}: has no chat template. Choose an instruction-tuned model.")

    def reply_as(self, config: EngineConfig) -> None:
        """Draw replies as `config` says (`logprobs`, `seeds`) from now on."""
        self._logprobs, self._seeds = config.logprobs, config.seeds

    async def draw(self, request: Request, adapter: Any = None) -> Generation:
        """Draw one reply, as `GenerateFn` does.

        Args:
            request: its own adapter is not looked at.
            adapter: vLLM's `LoRARequest`; None for the model alone.

        Raises:
            ConfigError: the request wants what the model cannot be shown.
            EngineDiedError: the engine is gone.
            PromptTooLongError: prompt and reply do not fit into the model's context.
            RolloutError: the engine could not answer.
        """
        loop = asyncio.get_running_loop()
        prompt_token_ids, opens_reasoning = await loop.run_in_executor(self._rendering, self._render, request)
        prompt = await self._build_prompt(prompt_token_ids, request)
        params = self._build_sampling_params(request)
        request_id = f"rollout-{next(self._request_numbers)}"
        with translate_errors():
            async for output in self._engine.generate(prompt, params, request_id, lora_request=adapter):  # type: ignore[arg-type]
                if output.finished:
                    digest = compute_prompt_digest(output.prompt_token_ids or (), list_images(request.messages))
                    return _to_generation(output.outputs[0], prompt_token_ids, opens_reasoning, digest)
        raise RolloutError(f"vLLM ended request {request_id} without a reply")

    def _build_sampling_params(self, request: Request) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        return SamplingParams(
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            repetition_penalty=request.sampling.repetition_penalty,
            max_tokens=request.max_tokens,
            seed=request.seed if self._seeds and request.sampling.temperature > 0 else None,
            stop=list(request.stop),
            include_stop_str_in_output=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
            logprobs=0 if self._logprobs else None,  # 0: of the drawn token alone
            flat_logprobs=True,  # a list of numbers, not an object a token
            structured_outputs=StructuredOutputsParams(structural_tag=request.form) if request.form else None,
        )

    async def _build_prompt(self, prompt_token_ids: list[int], request: Request) -> dict[str, Any]:
        """The prompt as vLLM's input; an image's token stands there as often as the image takes tokens."""

        def check_length(num_tokens: int) -> None:
            if num_tokens + request.max_tokens > self._max_model_len:
                raise PromptTooLongError(
                    f"a prompt of {num_tokens} tokens and a reply of up to {request.max_tokens} do not fit into "
                    f"engine.max_model_len {self._max_model_len}"
                )

        image_keys = list_images(request.messages)
        if not image_keys:
            check_length(len(prompt_token_ids))
            return {"prompt_token_ids": prompt_token_ids}
        if self._image_inputs is None:
            raise ConfigError("the prompt holds images, but the engine was started for text only.")
        return await self._image_inputs.expand(prompt_token_ids, image_keys, check_length)

    def _render(self, request: Request) -> tuple[list[int], bool]:
        """The tokens of a prompt, and whether it opens the reasoning that the reply goes on with."""
        if request.tools and "tools" not in self._tokenizer.chat_template:
            raise ConfigError("the model's chat template shows no functions to it. Set agent.protocol to tags.")
        text = self._tokenizer.apply_chat_template(
            disarm(request.messages, self._tokenizer),
            tools=list(request.tools) or None,
            add_generation_prompt=True,
            tokenize=False,
        )
        # Given several texts, and not just one, the tokenizer leaves Python to the event loop meanwhile.
        return self._tokenizer([text], add_special_tokens=False)["input_ids"][0], text.rstrip().endswith(THINK)

    def close(self) -> None:
        """Stop the threads."""
        if self._image_inputs:
            self._image_inputs.close()
        self._rendering.shutdown()


@contextlib.contextmanager
def translate_errors() -> Generator[None]:
    """Raise vLLM's errors as our own."""
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.engine.exceptions import EngineDeadError

    try:
        yield
    except VLLMValidationError as error:  # of a prompt whose images it processes itself; others are checked before
        raise PromptTooLongError(f"vLLM refuses the prompt: {error}") from error
    except EngineDeadError as error:
        raise EngineDiedError(f"vLLM's engine process is gone: {error}") from error


def _to_generation(reply: Any, prompt_token_ids: list[int], in_reasoning: bool, prompt_digest: str) -> Generation:
    """vLLM's completion output as a reply."""
    if reply.logprobs and reply.logprobs.token_ids != list(reply.token_ids):
        raise RolloutError("vLLM's log-probabilities are not those of the tokens that it drew")
    return Generation(
        text=reply.text,
        prompt_token_ids=tuple(prompt_token_ids),
        completion_token_ids=tuple(reply.token_ids),
        finish_reason=reply.finish_reason or "",
        completion_logprobs=tuple(reply.logprobs.logprobs) if reply.logprobs else (),
        in_reasoning=in_reasoning,
        prompt_digest=prompt_digest,
    )
