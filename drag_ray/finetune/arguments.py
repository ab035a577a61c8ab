"""The options that all of TRL's trainers have, from those of the stage."""

from typing import Any

from drag_ray.finetune.deepspeed import ZeroStage, build_deepspeed_settings
from drag_ray.finetune.job import TrainJob


def build_options(
    job: TrainJob, zero_stage: ZeroStage, scratch_dir: str, counts: dict[str, int], *, resumes: bool
) -> dict[str, Any]:
    """Arguments of any trainer. Rows come tokenized and are not cut.

    Args:
        scratch_dir: where checkpoints are written before they are reported.
        counts: of the rows, `validation_rows` and `images` among them.
        resumes: whether training goes on from a checkpoint.
    """
    config = job.config
    return {
        **_build_placement(job, zero_stage, num_loaders=config.image_workers if counts["images"] else 0),
        **_build_reports(config.checkpoint_steps, evaluates=counts["validation_rows"] > 0, resumes=resumes),
        "output_dir": scratch_dir,
        "num_train_epochs": config.epochs,
        "per_device_train_batch_size": config.batch_size,
        "per_device_eval_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation,
        "learning_rate": config.learning_rate,
        "warmup_steps": config.warmup_ratio,
        "optim": "adamw_torch",
        "include_num_input_tokens_seen": "non_padding",
        "gradient_checkpointing": config.gradient_checkpointing,
        "max_length": None,
        "remove_unused_columns": False,
        "seed": config.seed,
        "data_seed": config.seed,
        "report_to": "none",
        "disable_tqdm": True,
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
        "ddp_find_unused_parameters": False,
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
