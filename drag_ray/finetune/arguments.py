"""Arguments of TRL's trainers from the options of the stage, and DeepSpeed's settings for ZeRO-2 and ZeRO-3, on GPUs and CPUs.

`auto` values are filled in by the trainer from its own options, so that DeepSpeed's settings never contradict them.
"""

from typing import Any, Literal

from drag_ray.finetune.config import TrainJob

ZeroStage = Literal["off", "zero2", "zero3"]

_SMALL_PARAMETER = 1_000_000
_IMAGE_WORKERS = 2
"""processes that prepare page images ahead of each training process"""
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


def build_options(
    job: TrainJob, zero_stage: ZeroStage, scratch_dir: str, counts: dict[str, int], *, resumes: bool
) -> dict[str, Any]:
    """Arguments of any trainer, with those that the options name over those that the stage takes where none is named."""
    config = job.config
    return {
        **_build_placement(job, zero_stage, num_loaders=_IMAGE_WORKERS if counts.get("images") else 0),
        **_build_reports(config.checkpoint_steps, evaluates=counts["validation_rows"] > 0, resumes=resumes),
        "output_dir": scratch_dir,
        "num_train_epochs": config.epochs,
        "per_device_train_batch_size": config.batch_size,
        "per_device_eval_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation,
        "learning_rate": config.learning_rate,
        "warmup_steps": config.warmup_ratio,
        "lr_scheduler_type": "cosine",
        # Where all weights learn, the other one takes 2.5 times as long on a CPU.
        "optim": "adamw_torch_fused" if job.use_gpu or config.trains_whole else "adamw_torch",
        "include_num_input_tokens_seen": "non_padding",
        "gradient_checkpointing": config.gradient_checkpointing,
        "remove_unused_columns": False,
        "seed": config.seed,
        "data_seed": config.seed,
        "report_to": "none",
        "disable_tqdm": True,
        **config.arguments,
    }


def _build_placement(job: TrainJob, zero_stage: ZeroStage, num_loaders: int) -> dict[str, Any]:
    """Options of where and in how many processes it runs."""
    return {
        # Autocast is for GPUs; on a CPU the base's own type is as fast and takes less memory.
        "bf16": job.use_gpu and job.config.dtype != "float32",
        "use_cpu": not job.use_gpu,
        "dataloader_pin_memory": job.use_gpu,
        "dataloader_num_workers": num_loaders,
        "dataloader_persistent_workers": num_loaders > 0,
        "ddp_find_unused_parameters": job.config.sees,  # a batch may show no image
        "deepspeed": build_deepspeed_settings(zero_stage, job.use_gpu),
    }


def _build_reports(checkpoint_steps: int, *, evaluates: bool, resumes: bool) -> dict[str, Any]:
    """Options of when it logs, evaluates and keeps a checkpoint."""
    return {
        "logging_steps": 1,
        # It would log 0 in the place of a loss that is not finite. `FiniteSteps` stops there.
        "logging_nan_inf_filter": False,
        "save_strategy": "steps",
        "save_steps": checkpoint_steps,
        "eval_strategy": "steps" if evaluates else "no",
        "eval_steps": checkpoint_steps,
        "eval_on_start": evaluates and not resumes,
    }
