"""One training row tells whether an adapter does anything, as long as base model and adapter are in memory together."""

from typing import Any

import torch
from transformers import Trainer

from drag_ray.errors import NotFiniteError, TrainError
from drag_ray.finetune.collator import RowCollator
from drag_ray.finetune.images import TrainingImages
from drag_ray.finetune.methods.method import Method
from drag_ray.finetune.start import use_start
from drag_ray.finetune.tokenized_rows import list_sequences

_ROUNDING = 1e-5
"""By which log-probabilities and rewards, in float32, may differ without meaning anything."""


def check_effect(trainer: Trainer, method: Method, row: dict[str, Any], images: TrainingImages | None) -> None:
    """Compare what the trained model makes of a row with what the one did that it started from: two forward passes.

    Every process of the group calls this: with ZeRO-3 each holds a part of the model.

    Args:
        trainer: at its end.
        row: tokenized; of a pair the first side is read.

    Raises:
        NotFiniteError: the trained model gives numbers that are not finite.
        TrainError: training has changed nothing.
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
