"""What the trainers of all methods share."""

import pytest

from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.methods.registry import METHOD_NAMES
from drag_ray.finetune.trainer import _build_adapter
from drag_ray.finetune.trainers.adapter_trainer import compute_rate


@pytest.mark.parametrize(
    ("num_warmup", "num_steps", "rates"),
    [
        (1, 1, [1]),
        (0, 2, [1, 0.5]),
        (1, 2, [1, 0.5]),
        (2, 5, [0.5, 1, 0.853553, 0.5, 0.146447]),  # half a cosine in four parts, the last of which ends after the last step
        (3, 3, [1 / 3, 2 / 3, 1]),
    ],
)
def test_every_step_learns_and_the_rate_rises_and_falls(num_warmup: int, num_steps: int, rates: list[float]) -> None:
    found = [compute_rate(step, num_warmup=num_warmup, num_steps=num_steps) for step in range(num_steps)]
    assert found == pytest.approx(rates, abs=1e-6)
    assert min(found) > 0


@pytest.mark.parametrize(("method", "dropout"), [(name, 0.3 if name == "sft" else 0.0) for name in METHOD_NAMES])
def test_what_learns_replies_as_they_stand_trains_with_dropout(method: str, dropout: float) -> None:
    config = FinetuneConfig.model_validate({"method": method, "lora_dropout": 0.3, "batch_size": 2})
    assert _build_adapter(config, has_vision=False).lora_dropout == dropout
