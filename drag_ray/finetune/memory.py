"""GPU memory that a training takes, and disk space, estimated from its model's configuration before the model is loaded.

It is advice: where a family of models cannot be estimated, training goes on without. Weights and what AdamW keeps beside each
weight that learns are counted. What a token leaves behind for the backward pass follows from the shapes
of a layer, with flash attention and a head that holds few logits at once. A vision part at work is not counted.
"""

import itertools
import logging
import math
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModel

from drag_ray.errors import GpuMemoryError, TrainError
from drag_ray.finetune.arguments import ZeroStage
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.model_parts import find_part
from drag_ray.finetune.outputs.checkpoints import read_step
from drag_ray.finetune.rows.tokenized_rows import list_sequences

_logger = logging.getLogger(__name__)

_QUANTIZED_BYTES = {"nf4": 0.53, "int8": 1.0}
"""of a weight, with its scale"""
_OF_CUDA_GIB = 1.0


class MemoryEstimate(NamedTuple):
    """GiB on each GPU: of weights, of gradients and the optimizer's states, and of the tokens of a batch."""

    weights: float
    learning: float
    tokens: float

    @property
    def total(self) -> float:
        """With what CUDA itself takes."""
        return sum(self) + _OF_CUDA_GIB


class ModelShapes:
    """The shapes of a model, whose weights are not read."""

    def __init__(self, model: str) -> None:
        config: Any = AutoConfig.from_pretrained(model)
        if getattr(config, "quantization_config", None):
            raise NotImplementedError("its weights are quantised")
        with torch.device("meta"):
            body: Any = AutoModel.from_config(config)
        self.text: Any = config.get_text_config()
        head = 0 if getattr(config, "tie_word_embeddings", False) else self.text.vocab_size * self.text.hidden_size
        self.parts = {"language": head, "vision": 0, "projector": 0}
        for name, weight in body.named_parameters():
            self.parts[find_part(name)] += weight.numel()
        of_language = {name: module for name, module in body.named_modules() if find_part(f"{name}.") == "language"}
        self.linear = {name: layer for name, layer in of_language.items() if isinstance(layer, torch.nn.Linear)}

    def estimate(self, job: TrainJob, zero_stage: ZeroStage, num_tokens: int) -> MemoryEstimate:
        """The memory of a training whose longest batch has so many tokens."""
        config, num_shards = job.config, 1 if zero_stage == "off" else job.num_workers
        states = _count_state_bytes(config)
        width = 4 if config.dtype == "float32" or (config.trains_whole and zero_stage == "off") else 2
        if config.trains_whole:
            num_learned, beside = sum(self.parts.get(part, 0) for part in config.parts), 4 if zero_stage == "off" else 6
        else:
            chosen = [layer for name, layer in self.linear.items() if name.rpartition(".")[2] in config.target_modules]
            num_learned, beside = config.lora_r * sum(layer.in_features + layer.out_features for layer in chosen), 8
        saved = sum(layer.weight.numel() for layer in self.linear.values()) * (
            width - _QUANTIZED_BYTES.get(config.quantization, width)
        )
        weights = (sum(self.parts.values()) * width - saved) / (num_shards if zero_stage == "zero3" else 1)
        learning = num_learned * (beside + states) / num_shards
        return MemoryEstimate(*(count / 2**30 for count in (weights, learning, num_tokens * self._count_token_bytes(job))))

    def estimate_checkpoint(self, job: TrainJob, zero_stage: ZeroStage) -> tuple[float, float]:
        """GiB on the disk of a checkpoint of whole weights: those of all parts, and AdamW's states of those that learn.

        DeepSpeed keeps these weights in float32 too.
        """
        states = _count_state_bytes(job.config)
        learned = sum(self.parts.get(part, 0) for part in job.config.parts) * (states if zero_stage == "off" else states + 4)
        return sum(self.parts.values()) * (4 if zero_stage == "off" else 2) / 2**30, learned / 2**30

    def _count_token_bytes(self, job: TrainJob) -> float:
        """Bytes that a token leaves behind: those of each layer, or its input alone with gradient checkpointing."""
        config, text = job.config, self.text
        hidden, inner = text.hidden_size, getattr(text, "intermediate_size", 4 * text.hidden_size)
        heads = getattr(text, "num_attention_heads", 1)
        queries = heads * (getattr(text, "head_dim", None) or hidden // heads)
        keys = queries // heads * (getattr(text, "num_key_value_heads", None) or heads)
        # Norms keep float32; attention queries, keys, values and its result; the feed-forward layer its inner results.
        layer = (4 if config.liger else 8) * hidden + 4 * (queries + keys) + (4 if config.liger else 6) * inner
        # Each adapted layer keeps its input and the mask of its dropout; trained ones share the inputs that they have in common.
        layer += 4 * hidden + 2 * (queries + inner) if config.trains_whole else 15 * hidden + 3 * (queries + inner)
        kept = 2 * hidden if config.gradient_checkpointing else layer
        # Meanwhile the backward pass has a layer of its own, and its widest input four times in float32.
        return text.num_hidden_layers * kept + layer + 16 * inner


def _count_state_bytes(config: FinetuneConfig) -> int:
    """Bytes that AdamW keeps of a weight that learns; 0 for other optimizers, most of which keep less."""
    optim = str(config.arguments.get("optim", "adamw"))
    return (2 if "8bit" in optim else 8) if "adamw" in optim else 0


def check_memory(
    job: TrainJob, zero_stage: ZeroStage, rows: Sequence[Mapping[str, Any]], resume_from: Path | None, gpu_gib: float
) -> None:
    """Say what a training on tokenized rows takes of a GPU's memory, and what others would take where that is not enough; and of
    the disk, where all weights learn. Raises TrainError where the weights alone take more than the only GPU has, or checkpoints
    more than is free. Of several processes each sees its own GPU, and one that refuses would keep the others waiting."""
    try:
        shapes = ModelShapes(job.model)
        said, found = _describe_memory(shapes, job, zero_stage, rows, gpu_gib)
        disk, is_full = (
            _describe_disk(shapes, job, zero_stage, len(rows), resume_from) if job.config.trains_whole else ("", False)
        )
    except Exception as error:  # of configurations that are like no other
        _logger.info(f"finetune: the GPU memory of this training cannot be estimated ({type(error).__name__}: {error})")
        return
    if job.num_workers == 1 and (found.weights > gpu_gib or is_full):
        raise TrainError(f"{said}{disk}.")
    if os.environ.get("RANK", "0") == "0":  # Ray Train's
        _logger.info(said + disk)


def _describe_disk(
    shapes: ModelShapes, job: TrainJob, zero_stage: ZeroStage, num_rows: int, resume_from: Path | None
) -> tuple[str, bool]:
    """A checkpoint stays until the next one is whole, and the last one, of weights alone, until the model is written."""
    config = job.config
    weights, states = shapes.estimate_checkpoint(job, zero_stage)
    steps_an_epoch = math.ceil(num_rows / (job.num_workers * config.batch_size * config.gradient_accumulation))
    most_steps = config.arguments.get("max_steps", -1)
    num_steps = most_steps if most_steps > 0 else math.ceil(config.epochs * steps_an_epoch)
    num_left = math.ceil((num_steps - (read_step(resume_from) if resume_from else 0)) / config.checkpoint_steps)
    num_before_last = num_left if resume_from else num_left - 1  # with the one that is there; none where that is the last
    written = [weights + states] * min(num_before_last, 2) + [weights, weights]
    needed = max(map(sum, itertools.pairwise(written)))
    free = shutil.disk_usage(job.train_path.parent).free
    free += sum(path.stat().st_size for path in resume_from.rglob("*")) if resume_from else 0
    said = (
        f"; {needed:.1f} of {free / 2**30:.1f} GiB that the run's disk has free: weights {weights:.1f}, a checkpoint before the "
        f"last step {weights + states:.1f}"
    )
    is_full = free / 2**30 < needed
    return said + (", which is too much. Set run_dir to a folder on a larger disk" if is_full else ""), is_full


def _describe_memory(
    shapes: ModelShapes, job: TrainJob, zero_stage: ZeroStage, rows: Iterable[Mapping[str, Any]], gpu_gib: float
) -> tuple[str, MemoryEstimate]:
    lengths = sorted(sum(len(sequence["input_ids"]) for sequence in list_sequences(row)) for row in rows)

    def estimate(stage: ZeroStage = zero_stage, num_workers: int = job.num_workers, **changed: Any) -> MemoryEstimate:
        other = replace(job, config=job.config.model_copy(update=changed), num_workers=num_workers)
        return shapes.estimate(other, stage, sum(lengths[-other.config.batch_size :]))

    found = estimate()
    said = (
        f"finetune: about {found.total:.1f} of {gpu_gib:.1f} GiB of each GPU: weights {found.weights:.1f}, gradients and "
        f"optimizer {found.learning:.1f}, the longest batch {found.tokens:.1f}"
    )
    if found.total > gpu_gib:
        least: dict[str, Any] = {"batch_size": 1, "gradient_checkpointing": True}
        others = _find_smaller_batch(job.config, estimate, gpu_gib)
        others |= {
            "finetune.gradient_checkpointing": estimate(gradient_checkpointing=True),
            "batch_size 1 too": estimate(**least),
        }
        if not job.config.trains_whole:
            others["and quantization nf4"] = estimate(**least, quantization="nf4")
        others[f"or deepspeed zero3 on {2 * job.num_workers} GPUs at least"] = estimate("zero3", 2 * job.num_workers, **least)
        said += ", which is too much. " + ", ".join(f"{name}: {other.total:.1f} GiB" for name, other in others.items())
    return said, found


def _find_smaller_batch(
    config: FinetuneConfig, estimate: Callable[..., MemoryEstimate], gpu_gib: float
) -> dict[str, MemoryEstimate]:
    """The most rows at once that fit and of which a step has a whole number of batches, by what to set; nothing where none do."""
    for parts in range(2, config.batch_size + 1):
        size, rest = divmod(config.batch_size, parts)
        if not rest and (smaller := estimate(batch_size=size)).total <= gpu_gib:
            return {f"finetune.batch_size {size} and gradient_accumulation {config.gradient_accumulation * parts}": smaller}
    return {}


@contextmanager
def explain_full_memory(job: TrainJob) -> Generator[None]:
    """Raise a GpuMemoryError where the memory of the only GPU is full. Of several processes the others would wait for the one
    that fails: there the error is left to Ray, which ends them."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        if job.num_workers > 1:
            raise
        raise GpuMemoryError(str(error)) from error
