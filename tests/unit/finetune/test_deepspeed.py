from typing import Literal

import pytest

from drag_ray.finetune.arguments import build_deepspeed_settings, resolve_zero_stage


@pytest.mark.parametrize(
    ("wanted", "use_gpu", "num_workers", "stage"),
    [
        ("auto", True, 2, "zero2"),
        ("auto", True, 1, "off"),
        ("auto", False, 2, "off"),
        ("zero3", False, 2, "zero3"),
        ("zero2", True, 1, "zero2"),
        ("off", True, 2, "off"),
    ],
)
def test_auto_means_zero2_on_several_gpus(
    wanted: Literal["auto", "off", "zero2", "zero3"], use_gpu: bool, num_workers: int, stage: str
) -> None:
    assert resolve_zero_stage(wanted, use_gpu, num_workers) == stage


@pytest.mark.parametrize(("stage", "number"), [("zero2", 2), ("zero3", 3)])
@pytest.mark.parametrize("use_gpu", [True, False])
def test_settings_leave_sizes_to_the_trainer(stage: Literal["zero2", "zero3"], number: int, use_gpu: bool) -> None:
    settings = build_deepspeed_settings(stage, use_gpu)
    assert settings is not None
    assert settings["zero_optimization"]["stage"] == number
    for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"):
        assert settings[key] == "auto"
    assert settings["zero_optimization"]["overlap_comm"] is use_gpu  # a CPU has no streams to overlap on


def test_deepspeed_itself_accepts_the_settings() -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    settings = build_deepspeed_settings("zero3", use_gpu=False)
    assert settings is not None
    assert DeepSpeedZeroConfig(**settings["zero_optimization"]).stage == 3
    assert build_deepspeed_settings("off", use_gpu=True) is None
