"""Checks of an adapter's weights: finite, changed by training."""

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from drag_ray.engine.models.model_files import ADAPTER_WEIGHTS_NAME
from drag_ray.errors import NotFiniteError, TrainError


def find_not_finite(path: Path) -> str | None:
    """The name of the first weight of a safetensors file that is infinite or not a number."""
    return next((name for name, weight in _read_weights(path) if not is_finite(weight)), None)


def is_finite(weight: torch.Tensor) -> bool:
    """True if no number is infinite or NaN. Its extremes tell: on a CPU a look at each number takes many times as long."""
    return not weight.numel() or all(extreme.isfinite() for extreme in weight.aminmax())


def check_weights(adapter_dir: Path, start_dir: Path | None = None) -> None:
    """Refuse an adapter that is broken, or that is what it was before it learned: the one of `start_dir`, or a new one.

    Raises:
        NotFiniteError: a weight is infinite or not a number.
        TrainError: the weights are those that training began with: of a new adapter the second matrices of LoRA are 0.
    """
    if name := find_not_finite(path := adapter_dir / ADAPTER_WEIGHTS_NAME):
        raise NotFiniteError(f"{adapter_dir}: {name} is not finite. Train again with a lower finetune.learning_rate.")
    before = dict(_read_weights(start_dir / ADAPTER_WEIGHTS_NAME)) if start_dir else {}
    learned = ((weight, before.get(name)) for name, weight in _read_weights(path) if ".lora_B." in name)
    if not any(weight.any() if old is None else not weight.equal(old) for weight, old in learned):
        raise TrainError(
            f"{adapter_dir}: all of lora_B is {f'as in {start_dir}' if start_dir else 0}, as before training, so the adapter has "
            "learned nothing. Train longer (finetune.epochs) or on more rows."
        )


def _read_weights(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        with safe_open(path, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118, it is no dictionary
                yield name, weights.get_tensor(name)
    except (SafetensorError, RuntimeError, KeyError) as error:  # the last two of types that it does not know
        raise TrainError(f"{path}: not a readable safetensors file ({error}). Copy it again.") from None
