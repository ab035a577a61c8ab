"""DeepSpeed settings for ZeRO-2 and ZeRO-3, on GPUs and on CPUs.

`auto` values are filled in by the trainer from its own options, so that these settings never contradict them.
"""

from typing import Any, Literal

ZeroStage = Literal["off", "zero2", "zero3"]

_SMALL_PARAMETER = 1_000_000
"""Numbers of a parameter below which every GPU keeps the whole of it: those of an adapter, each of which would be gathered for
itself every time. An eighth of the time, on two GPUs with the shapes of an 8B model."""


def resolve_zero_stage(wanted: Literal["auto", "off", "zero2", "zero3"], use_gpu: bool, num_workers: int) -> ZeroStage:
    """`auto` is ZeRO-2 on several GPUs; one has nothing to share, and CPUs do well with plain data parallelism."""
    if wanted == "auto":
        return "zero2" if use_gpu and num_workers > 1 else "off"
    return wanted


def build_deepspeed_settings(stage: ZeroStage, use_gpu: bool) -> dict[str, Any] | None:
    """The settings dictionary that `TrainingArguments(deepspeed=...)` takes; None when DeepSpeed is off."""
    if stage == "off":
        return None
    return {
        "zero_optimization": _build_zero3(use_gpu) if stage == "zero3" else _build_zero2(use_gpu),
        # The optimizer is PyTorch's AdamW: DeepSpeed's own are compiled on first use, which needs a CUDA toolkit.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": "auto" if use_gpu else False},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto",
        "gradient_clipping": "auto",
        "steps_per_print": 1_000_000,
    }


def _build_zero2(use_gpu: bool) -> dict[str, Any]:
    return {
        "stage": 2,
        "overlap_comm": use_gpu,
        "contiguous_gradients": use_gpu,
        "allgather_partitions": True,
        "reduce_scatter": True,
    }


def _build_zero3(use_gpu: bool) -> dict[str, Any]:
    return {
        "stage": 3,
        "overlap_comm": use_gpu,
        "contiguous_gradients": use_gpu,
        "stage3_gather_16bit_weights_on_model_save": True,
        "stage3_param_persistence_threshold": _SMALL_PARAMETER if use_gpu else 0,
        "stage3_prefetch_bucket_size": "auto" if use_gpu else 0,
    }
