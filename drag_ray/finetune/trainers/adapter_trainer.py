"""The part that the trainers of all methods share: tokenized rows, the learning rate, checkpoints of one adapter.

Training stops at the step whose loss or gradient is not finite, and keeps no checkpoint whose weights are not.
"""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import gather_object
from peft import PeftModel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import Trainer
from transformers.trainer_utils import SchedulerType

from drag_ray.engine.models.adapter_weights import find_not_finite
from drag_ray.engine.models.model_files import WEIGHTS_PATTERN
from drag_ray.errors import NotFiniteError
from drag_ray.finetune.model_parts import split_rates
from drag_ray.finetune.outputs.checkpoints import saving
from drag_ray.finetune.start import START_NAME

CUDNN_BUG = "https://github.com/pytorch/pytorch/issues/196678"
"""Its backward pass gives NaN where there is a mask, the length is 64 more than a multiple of 128, and no key of a query scores
above -88.7, as in Qwen2.5. PyTorch takes cuDNN first on Hopper GPUs, and has had this since 2.11."""

_FIRST_SOUND_CUDNN = 92600
"""cuDNN 9.26: https://github.com/pytorch/pytorch/pull/196861 guards PyTorch from 9.25.1 and older ones."""

_KERNELS = ("flash", "mem_efficient", "cudnn", "math")


def leave_out_broken_kernels() -> None:
    """Keep this process from cuDNN's attention where it is broken."""
    if not is_cudnn_sound():
        torch.backends.cuda.enable_cudnn_sdp(False)


def is_cudnn_sound() -> bool:
    """True if cuDNN's attention gives gradients that can be learned from. See `CUDNN_BUG`."""
    return (torch.backends.cudnn.version() or 0) >= _FIRST_SOUND_CUDNN


def describe_attention(model: Any, use_gpu: bool) -> str:
    """A description of the model's attention: implementation, kernels that are allowed, version and GPU."""
    implementation = model.config._attn_implementation
    if not use_gpu:
        return f"{implementation}, torch {torch.__version__}"
    allowed = [name for name in _KERNELS if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()]
    return f"{implementation} ({', '.join(allowed)}), torch {torch.__version__}, {torch.cuda.get_device_name()}"


ROW_NAMES = "row_names"
"""What of a batch says which rows it has; the model is not given it."""
_MOST_NAMES = 64
"""Names of rows that a message has room for."""


class FiniteSteps(Trainer):
    """Stands before a trainer, on rows that have a name, and stops it before it learns from numbers that are not finite.

    transformers would go on. One NaN among the gradients takes every weight with it, and from then on each loss is NaN and logged
    as 0. DeepSpeed leaves such a step out and says nothing, so that of a training hardly any step may count.

    All processes stop at the same step. Looking costs one wait for the GPU a step, and transformers' own filter, which is off,
    waited twice a batch.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.data_collator: Any = partial(_collate_with_names, self.data_collator)
        self._step_losses: list[torch.Tensor] = []
        self._step_names: list[str] = []

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """Note the loss of a batch, and of which rows it is."""
        self._step_names += inputs[ROW_NAMES]
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._step_losses.append(loss)
        return loss

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return super()._prepare_inputs({name: value for name, value in inputs.items() if name != ROW_NAMES})

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """The gradient norm of a step that may be taken. It is asked for once a step, before the optimizer."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        loss = torch.stack(self._step_losses).sum().float()
        figures = torch.stack([loss, torch.as_tensor(norm).to(loss)])
        losses, norms = torch.as_tensor(self.accelerator.gather(figures)).view(-1, 2).T.tolist()
        if not all(map(math.isfinite, losses + norms)):
            raise NotFiniteError(self._describe_step(sum(losses) / len(losses), sum(norms) / len(norms)))
        self._step_losses, self._step_names = [], []
        return norm

    def _describe_step(self, loss: float, norm: float) -> str:
        names: Sequence[str] = gather_object(self._step_names)
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        if not math.isfinite(loss) and self.state.global_step == 0:
            cause = "No weight has changed yet, so one of these rows is broken, or the base model is in this finetune.dtype."
        elif math.isfinite(loss) and torch.cuda.is_available() and torch.backends.cuda.cudnn_sdp_enabled():
            cause = f"The loss is finite, so the way back from it is at fault, most likely cuDNN's attention: {CUDNN_BUG}."
        else:
            cause = (
                f"Most often finetune.learning_rate is too high: lower it ({self.args.learning_rate:g} now). "
                "Otherwise look at these rows, and try finetune.dtype float32."
            )
        return (
            f"finetune step {self.state.global_step + 1}: loss {loss:.4g}, gradient norm {norm:.4g}, and nothing is learned from "
            f"it. Rows of the step, by their line in train.jsonl: {', '.join(names[:_MOST_NAMES])}{more}. {cause}"
        )

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """The schedule of `compute_rate`, or one of transformers that is named; its cosine begins with a step at a rate of 0."""
        scheduler = cast(LRScheduler | None, self.lr_scheduler)
        if self.args.lr_scheduler_type != SchedulerType.COSINE:
            return super().create_scheduler(num_training_steps, optimizer)
        if scheduler is None:
            num_warmup = self.args.get_warmup_steps(num_training_steps)
            rate = partial(compute_rate, num_warmup=num_warmup, num_steps=num_training_steps)
            scheduler = self.lr_scheduler = LambdaLR(optimizer or cast(Optimizer, self.optimizer), rate)
            self._created_lr_scheduler = True
        return scheduler

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint; the callback that reports it is called for a good one alone.

        The last one of a whole model holds its weights alone: the states of the optimizer take several times their space. Those
        of an adapter are small, and DeepSpeed reads no adapter without them.
        """
        step = self.state.global_step
        self.args.save_only_model |= step >= self.state.max_steps and not isinstance(self.model, PeftModel)
        checkpoint_dir = Path(self._get_output_dir(trial)) / f"checkpoint-{step}"
        with saving(checkpoint_dir):
            super()._save_checkpoint(model, trial)
            checkpoint_dir.mkdir(exist_ok=True)  # of weights alone process 0 writes all
            written = sorted(checkpoint_dir.glob(WEIGHTS_PATTERN)) if self.args.should_save else []
            found = next(filter(None, map(find_not_finite, written)), None)
        # Process 0 alone has the files, and all have to stop.
        for name in filter(None, gather_object([found])):
            raise NotFiniteError(
                f"finetune step {step}: its gradient was finite, and {name} no longer is, so its checkpoint is not kept. "
                f"Lower finetune.learning_rate ({self.args.learning_rate:g} now)."
            )


def _collate_with_names(collate: Callable[..., dict[str, Any]], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    unnamed = [{column: value for column, value in row.items() if column != "name"} for row in rows]
    return collate(unnamed) | {ROW_NAMES: [row["name"] for row in rows]}


class AdapterTrainer(FiniteSteps):
    """Stands before a trainer of TRL. `part_rates`: learning rates of parts of a whole model, in the place of that of all."""

    def __init__(self, *args: Any, part_rates: Mapping[str, float] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._part_rates = part_rates or {}
        model: Any = self.model
        if getattr(model, "is_quantized", False):  # TRL gives the adapter of such a model bfloat16
            for weight in filter(lambda weight: weight.requires_grad, model.parameters()):
                weight.data = weight.data.float()

    def create_optimizer(self, model: Any = None) -> Optimizer:
        """That of the options, with the rates of parts."""
        is_new = cast(Optimizer | None, self.optimizer) is None
        optimizer = super().create_optimizer(model)
        if is_new and self._part_rates:
            split_rates(optimizer, model or self.model, self._part_rates)
        return optimizer

    def _prepare_dataset(self, dataset: Any, *args: Any, **options: Any) -> Any:
        """The rows as they are: TRL would tokenize a prompt together with its reply, and when it serves the model is given the
        tokens of the one and writes those of the other."""
        return dataset

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Write the adapter without the copy of what it started from, which transformers would go on from in its place."""
        folder = output_dir or cast(str, self.args.output_dir)
        super()._save(folder, state_dict)
        shutil.rmtree(Path(folder) / START_NAME, ignore_errors=True)


class RowMeans(FiniteSteps):
    """Stands before a trainer whose loss is a mean over the rows of a batch: makes it one over all rows of a step, in all its
    processes.

    transformers would take the mean of the batches' means, in which a row of a short batch, as an epoch ends with, counts more.
    """

    loss_is_scaled_for_ga = False

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> tuple[list[Any], Any]:
        """The batches of a step, and the number of its rows."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        num_rows = torch.tensor(sum(len(batch[ROW_NAMES]) for batch in batches), device=device)
        return batches, torch.as_tensor(self.accelerator.gather(num_rows)).sum()

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """Weigh a batch by its share of the step's rows. Gradients are summed over batches, and averaged over processes."""
        num_rows_of_all = self.accelerator.num_processes * len(inputs[ROW_NAMES])
        self.current_gradient_accumulation_steps = num_items_in_batch / num_rows_of_all  # which divides the loss
        return super().training_step(model, inputs, num_items_in_batch)


class RowMeanTrainer(RowMeans, AdapterTrainer):
    """An `AdapterTrainer` of such a loss."""


def compute_rate(step: int, *, num_warmup: int, num_steps: int) -> float:
    """The share of the highest learning rate that a step learns with: it rises in equal parts, then falls as half a cosine.

    Every step learns: the rate would be 0 before the first and after the last.

    Args:
        step: counted from 0.
        num_warmup: steps in which it rises; the last of them, or the first step where there is none, has the highest rate.
        num_steps: all steps.
    """
    peak, place = max(num_warmup, 1), step + 1
    if place <= peak:
        return place / peak
    return 0.5 * (1 + math.cos(math.pi * (place - peak) / (num_steps + 1 - peak)))
