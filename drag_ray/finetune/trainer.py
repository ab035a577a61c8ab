"""One training process: a trainer of TRL on tokenized rows or preference pairs, with a LoRA adapter or with weights of the model.

It knows nothing of Ray: it is given a function that takes its metrics and checkpoints.
"""

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import PrinterCallback, Trainer, TrainingArguments, set_seed
from transformers.integrations.liger import apply_liger_kernel
from transformers.trainer_callback import TrainerState
from transformers.utils.logging import disable_progress_bar
from trl.trainer.utils import disable_dropout_in_model

from drag_ray.cluster.metrics import StageRecorder
from drag_ray.engine.models.dtype import choose_dtype
from drag_ray.engine.models.model_files import IMAGE_MODULES
from drag_ray.engine.models.pretrained import load_tokenizer
from drag_ray.errors import NotFiniteError, TrainError
from drag_ray.finetune.arguments import ZeroStage, build_options, resolve_zero_stage
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.curve import ReportCallback, ReportFn, build_curve
from drag_ray.finetune.memory import check_memory, explain_full_memory
from drag_ray.finetune.methods.method import AdapterMethod, TrainerOptions
from drag_ray.finetune.model_parts import free_parts
from drag_ray.finetune.named import check_reporting, explain_refusal
from drag_ray.finetune.outputs import checkpoints
from drag_ray.finetune.rows.images import TrainingImages, open_training_images
from drag_ray.finetune.rows.tokenized_rows import list_sequences
from drag_ray.finetune.rows.training_rows import TrainingRows
from drag_ray.finetune.start import keep_start, load_start, use_start
from drag_ray.finetune.trainers.adapter_trainer import describe_attention, leave_out_broken_kernels
from drag_ray.finetune.trainers.collator import RowCollator
from drag_ray.finetune.trainers.lora_layer import LoraLinear

_ROUNDING = 1e-5
"""By which log-probabilities and rewards, in float32, may differ without meaning anything."""


def train(
    job: TrainJob, rows: TrainingRows, report: ReportFn, resume_from: Path | None, recorder: StageRecorder | None = None
) -> dict[str, Any]:
    """Train to the end, from the checkpoint `resume_from` if there is one.

    Every process of the group calls this with all rows, and so calls `report` equally often. `recorder` takes how far it is.

    Returns:
        {"counts": {...}, "curve": [...], "attention": "..."}: what was learned from, one point per step and per evaluation, and
        what computed attention.

    Raises:
        NotFiniteError: loss, gradient or weights are not finite; says which rows were learned from then.
        GpuMemoryError: the GPU's memory is full.
        TrainError: the model cannot be trained with these options, or in the GPU's memory, or has learned nothing.
    """
    config = job.config
    zero_stage = resolve_zero_stage(config.deepspeed, job.use_gpu, job.num_workers)
    prepare_process(job)
    if zero_stage != "off":
        _start_deepspeed(job.use_gpu)
    method, images = _take_method(config), open_training_images(job.model, job.image_dirs)
    _check_images_reach(config, zero_stage, rows.train.rows + rows.validation.rows)
    if job.use_gpu:
        check_memory(job, zero_stage, rows.train.rows, resume_from, torch.cuda.mem_get_info()[1] / 2**30)
    set_seed(config.seed)
    with tempfile.TemporaryDirectory(prefix="drag-ray-finetune-", dir=job.scratch_dir) as scratch_dir:
        # ZeRO-3 splits the weights while they load, so its settings must be in force before the model is made.
        options = build_options(job, zero_stage, scratch_dir, rows.counts, resumes=resume_from is not None)
        with explain_refusal("arguments", config.arguments):
            arguments = method.build_arguments({**options, "max_length": None})  # rows come tokenized, and are not cut
            check_reporting(arguments.report_to)
        trainer = method.build_trainer(_load_parts(job, zero_stage, arguments, rows), images)
        if job.start_dir:
            keep_start(trainer.model)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(ReportCallback(report, rows.counts, recorder or StageRecorder()))
        if config.trains_whole and resume_from and checkpoints.is_finished(resume_from):
            trainer.state = TrainerState.load_from_json(str(resume_from / checkpoints.STATE_NAME))
        else:
            with explain_refusal("arguments", config.arguments, (ImportError,)), explain_full_memory(job):
                trainer.train(resume_from_checkpoint=str(resume_from) if resume_from else None)
        if not config.trains_whole:  # what it was before is there with an adapter alone; a whole model is compared when published
            check_effect(trainer, method, rows.train.rows[0], images)
        attention = describe_attention(trainer.model, job.use_gpu)
        return {"counts": rows.counts, "curve": build_curve(trainer.state.log_history), "attention": attention}


def _take_method(config: FinetuneConfig) -> AdapterMethod:
    method = config.chosen_method
    assert isinstance(method, AdapterMethod)
    return method


def prepare_process(job: TrainJob) -> None:
    """Have PyTorch use what a job has of its machine, and no kernel that is broken."""
    disable_progress_bar()
    if job.use_gpu:
        leave_out_broken_kernels()
    else:
        torch.set_num_threads(job.num_threads)


def _start_deepspeed(use_gpu: bool) -> None:
    if not use_gpu:
        os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    # It calls functions of PyTorch that have new names, of which each process would be told once more after every evaluation.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    if not use_gpu:
        # No kernel of its own is for training. It would compile one all the same, which takes a compiler, and a process that is
        # killed meanwhile leaves a lock behind that all later ones wait for.
        deepspeed.ops.__compatible_ops__ = {}  # pyright: ignore[reportAttributeAccessIssue], as it is made when asked for
    # Ray has made PyTorch's process group already; without this DeepSpeed takes the group for one of a single process.
    deepspeed.init_distributed(dist_backend="nccl" if use_gpu else "gloo")


def _check_images_reach(config: FinetuneConfig, zero_stage: ZeroStage, rows: list[dict[str, Any]]) -> None:
    """Refuse rows of which some, without images, would stop the training of the others, or teach nothing."""
    num_with_images = sum(bool(row["image_keys"]) for row in rows)
    shown = f"{num_with_images} of {len(rows)} rows show page images"
    if config.sees and (num_with_images == 0 or (num_with_images < len(rows) and "language" not in config.parts)):
        raise TrainError(
            f"finetune.parts {', '.join(config.parts)}: {shown}, and from others vision and projector learn nothing. Train "
            "language too, or on rows that all show some (agent.page_view of the collection)."
        )
    if 0 < num_with_images < len(rows) and (zero_stage == "zero3" or (zero_stage == "zero2" and config.sees)):
        raise TrainError(
            f"finetune.deepspeed {zero_stage}: {shown}. The processes gather what is of the vision part together, and one whose "
            f"batch shows no image would keep the others waiting. Use {'off' if config.sees else 'zero2'}."
        )


def _load_parts(job: TrainJob, zero_stage: ZeroStage, arguments: TrainingArguments, rows: TrainingRows) -> TrainerOptions:
    model, adapter = load_to_train(job, in_float32=zero_stage != "zero3")
    return {
        "model": model,
        "args": arguments,
        "train_dataset": Dataset.from_list(rows.train.rows),
        "eval_dataset": Dataset.from_list(rows.validation.rows) if rows.validation.rows else None,
        "processing_class": load_tokenizer(job.model),
        "peft_config": adapter,
        "part_rates": {**job.config.part_learning_rates},
    }


def load_to_train(job: TrainJob, *, in_float32: bool = True) -> tuple[Any, LoraConfig | None]:
    """The model with the adapter that training starts from, or without one and the adapter that it is to get; where parts of the
    model learn themselves, there is none. `in_float32`: of the adapter that it starts from: as TRL gives it to new ones. ZeRO-3
    gathers weights of one type."""
    method, quantization = _take_method(job.config), job.config.quantization
    quantized = quantization != "none" and quantization
    dtype = choose_dtype(job.config.dtype, "finetune", on_gpu=job.use_gpu)
    if job.config.trains_whole and not _keeps_float32(job):
        dtype = "float32"
    with explain_refusal("quantization", quantized, (ImportError,), ". On every node: pip install bitsandbytes"):
        model = method.load_model(job.model, dtype, quantization)
    if job.config.liger:
        _take_liger(model, use_gpu=job.use_gpu)
    if job.config.trains_whole:
        free_parts(model, job.config.parts)
        return model, None
    _check_target_modules(model, job.config.target_modules)
    if not method.uses_dropout:
        disable_dropout_in_model(model)
    adapter = _build_adapter(job.config, has_vision=bool(getattr(model.config, "vision_config", None)))
    if in_float32 and not getattr(model, "is_quantized", False):  # ZeRO-3 gathers a layer's weights when the layer is called
        adapter._register_custom_module({torch.nn.Linear: LoraLinear})  # pyright: ignore[reportPrivateUsage], its only way
    if job.start_dir:
        return load_start(model, adapter, job.start_dir, in_float32=in_float32), None
    return model, adapter


def _keeps_float32(job: TrainJob) -> bool:
    """True if steps smaller than a weight's digits are kept elsewhere than in the weights: by DeepSpeed on GPUs."""
    return job.use_gpu and resolve_zero_stage(job.config.deepspeed, job.use_gpu, job.num_workers) != "off"


def _take_liger(model: Any, *, use_gpu: bool) -> None:
    """Have a model use Liger's kernels, but those of the loss, in whose place the trainers have a head of TRL or their own."""
    if not use_gpu:
        raise TrainError("finetune.liger: its kernels run on GPUs, and this training is on CPUs. Leave it out.")
    try:
        apply_liger_kernel(model, {"cross_entropy": False, "fused_linear_cross_entropy": False})
    except ImportError as error:
        raise TrainError(
            f"finetune.liger: {error}. Install it on every node (pip install liger-kernel), or leave it out."
        ) from None


def _build_adapter(config: FinetuneConfig, *, has_vision: bool) -> LoraConfig:
    method = _take_method(config)
    with explain_refusal("lora", config.lora):
        return LoraConfig(
            r=config.lora_r,
            lora_alpha=config.lora_alpha,
            lora_dropout=config.lora_dropout if method.uses_dropout else 0.0,
            target_modules=list(config.target_modules),
            # The vision part stays as it is: the replies to learn are few and teach it little, and vLLM serves adapters of the
            # language part alone.
            exclude_modules=IMAGE_MODULES if has_vision else None,
            task_type=method.task,  # PEFT trains a reward model's head as well
            **config.lora,
        )


def _check_target_modules(model: Any, target_modules: tuple[str, ...]) -> None:
    present = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    missing = sorted(set(target_modules) - present)
    if missing:
        raise TrainError(
            f"finetune.target_modules: the model has no layers named {', '.join(missing)}. It has: {', '.join(sorted(present))}."
        )


def check_effect(trainer: Trainer, method: AdapterMethod, row: dict[str, Any], images: TrainingImages | None) -> None:
    """Compare what the trained model makes of a row with what the one did that it started from: two forward passes.

    Every process of the group calls this: with ZeRO-3 each holds a part of the model. Raises NotFiniteError where the trained
    model gives numbers that are not finite, and TrainError where training has changed nothing.

    Args:
        trainer: at its end.
        row: tokenized; of a pair the first side is read.
    """
    model: Any = trainer.model_wrapped
    adapted: Any = trainer.accelerator.unwrap_model(model)
    tokenizer: Any = trainer.processing_class
    batch = RowCollator(tokenizer.pad_token_id, images)([{**list_sequences(row)[0], "image_keys": row["image_keys"]}])
    inputs = trainer._prepare_inputs(batch)  # pyright: ignore[reportPrivateUsage], as nothing public brings a batch to the model
    model.eval()
    with torch.no_grad():
        now = method.score(model, inputs)
        with use_start(adapted):
            before = method.score(model, inputs)
    learning_rate = trainer.args.learning_rate
    if not now.isfinite().all():
        raise NotFiniteError(
            f"what the trained model makes of training row {row['name']} is not finite. "
            f"Lower finetune.learning_rate ({learning_rate:g} now)."
        )
    if (now - before).abs().max() < _ROUNDING:
        raise TrainError(
            f"training has changed nothing: the adapter leaves what the model makes of training row {row['name']} as it was. "
            f"It took {trainer.state.global_step} steps at finetune.learning_rate {learning_rate:g}; raise one of the two."
        )
