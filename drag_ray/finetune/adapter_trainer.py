"""What the trainers of all methods have in common: rows that are tokenized, the learning rate, checkpoints of one adapter."""

import math
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from drag_ray.finetune.finite_steps import ROW_NAMES, FiniteSteps
from drag_ray.finetune.start import START_NAME


class AdapterTrainer(FiniteSteps):
    """Stands before a trainer of TRL."""

    def _prepare_dataset(self, dataset: Any, *args: Any, **options: Any) -> Any:
        """The rows as they are: TRL would tokenize a prompt together with its reply, and when it serves the model is given the
        tokens of the one and writes those of the other.
        """
        return dataset

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """The schedule of `compute_rate`: that of transformers begins with a step at a rate of 0."""
        scheduler = cast(LRScheduler | None, self.lr_scheduler)
        if scheduler is None:
            num_warmup = self.args.get_warmup_steps(num_training_steps)
            rate = partial(compute_rate, num_warmup=num_warmup, num_steps=num_training_steps)
            scheduler = self.lr_scheduler = LambdaLR(optimizer or cast(Optimizer, self.optimizer), rate)
            self._created_lr_scheduler = True
        return scheduler

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Write the adapter without the copy of what it started from, which transformers would go on from in its place."""
        folder = output_dir or cast(str, self.args.output_dir)
        super()._save(folder, state_dict)
        shutil.rmtree(Path(folder) / START_NAME, ignore_errors=True)


class RowMeanTrainer(AdapterTrainer):
    """An `AdapterTrainer` whose loss is a mean over the rows of a batch, and over all rows of a step, in all its processes.

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
