"""vLLM's options for prompts with images, and a larger cache of what the vision encoder made of them.

vLLM keeps the encodings of images on the GPU for as long as there is room, but only has room for one batch; a page that comes
back is encoded again. Pages come back all the time here: the samples of a question find the same ones.
(vLLM's connector that keeps encodings in main memory works through them token by token in Python; on an H200 that took a quarter
of the engine's main thread, and the GPU waited.)
"""

from collections.abc import Iterable
from typing import Any

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import ImageSource


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
    """What vLLM adds to its worker, the process that holds the model, for `collective_rpc` (its `worker_extension_cls`)."""

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
        """`dict.update` would pass by `__setitem__`."""
        for name, tensor in tensors:
            self[name] = tensor


def _compute_share(config: EngineConfig) -> float:
    """The share of a GPU's memory that the encodings take."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu() or not config.encoder_cache_gib:
        return 0.0
    return config.encoder_cache_gib * 2**30 / current_platform.get_device_total_memory()


def _compute_token_bytes(model_config: Any) -> int:
    """Bytes of one encoded token: Qwen3-VL hands outputs of earlier encoder layers to the language model beside the last one."""
    vision = getattr(model_config.hf_config, "vision_config", None)
    width = getattr(vision, "out_hidden_size", None) or model_config.get_inputs_embeds_size()
    num_outputs = 1 + len(getattr(vision, "deepstack_visual_indexes", None) or ())
    return width * num_outputs * model_config.dtype.itemsize
