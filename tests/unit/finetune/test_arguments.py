"""Arguments of a training: number format, kernels, DeepSpeed, workers, learning rate and dropout."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from training_cases import ADAPTER_METHODS

from drag_ray.cluster.nodes import NodeResources, SharedPathNodes
from drag_ray.errors import TrainError
from drag_ray.finetune import trainer
from drag_ray.finetune.arguments import build_deepspeed_settings, build_options, resolve_zero_stage
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.trainer import _build_adapter, _take_liger
from drag_ray.finetune.trainers.adapter_trainer import compute_rate, leave_out_broken_kernels
from drag_ray.finetune.training_process import Workers, divide_steps, size_workers


def options_of(dtype: Literal["auto", "bfloat16", "float32"], *, use_gpu: bool, images: int = 0) -> dict[str, Any]:
    rows = Path("rows.jsonl")
    job = TrainJob(FinetuneConfig(dtype=dtype), "model", rows, rows, (), use_gpu=use_gpu, num_workers=1, num_threads=1)
    return build_options(job, "off", "scratch", {"images": images, "validation_rows": 0}, resumes=False)


@pytest.mark.parametrize(
    ("dtype", "use_gpu", "autocasts"),
    [
        ("auto", True, True),
        ("bfloat16", True, True),
        ("float32", True, False),
        ("auto", False, False),
        ("bfloat16", False, False),
    ],
)
def test_autocast_is_for_bfloat16_on_gpus(dtype: Literal["auto", "bfloat16", "float32"], use_gpu: bool, autocasts: bool) -> None:
    assert options_of(dtype, use_gpu=use_gpu)["bf16"] is autocasts


def test_page_images_are_prepared_by_other_processes_ahead_of_the_step() -> None:
    options = options_of("auto", use_gpu=True, images=3)
    assert options["dataloader_num_workers"] > 0
    assert options["dataloader_persistent_workers"]
    assert options_of("auto", use_gpu=True)["dataloader_num_workers"] == 0


def test_a_merged_model_is_the_same_whichever_processor_trained_and_no_tracker_is_told() -> None:
    assert FinetuneConfig().dtype == "auto"
    assert FinetuneConfig().merged_dtype == FinetuneConfig(dtype="bfloat16").merged_dtype == "bfloat16"
    assert FinetuneConfig(dtype="float32").merged_dtype == "float32"
    assert options_of("auto", use_gpu=False)["report_to"] == "none"


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


@pytest.mark.parametrize(("method", "dropout"), [(name, 0.3 if name == "sft" else 0.0) for name in ADAPTER_METHODS])
def test_what_learns_replies_as_they_stand_trains_with_dropout(method: str, dropout: float) -> None:
    config = FinetuneConfig.model_validate({"method": method, "lora_dropout": 0.3, "batch_size": 2})
    assert _build_adapter(config, has_vision=False).lora_dropout == dropout


@pytest.fixture(autouse=True)
def default_kernels() -> Iterator[None]:
    yield
    torch.backends.cuda.enable_cudnn_sdp(True)


def test_the_optimizer_is_fused_on_gpus_alone() -> None:
    assert options_of("auto", use_gpu=True)["optim"] == "adamw_torch_fused"
    assert options_of("auto", use_gpu=False)["optim"] == "adamw_torch"


def test_kernels_of_liger_are_those_of_layers_and_a_training_without_them_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(1, 1)
    with pytest.raises(TrainError, match=r"finetune\.liger: .* on CPUs"):
        _take_liger(model, use_gpu=False)
    monkeypatch.setattr("transformers.integrations.liger.is_liger_kernel_available", lambda: False)
    with pytest.raises(TrainError, match=r"finetune\.liger: .*pip install liger-kernel"):
        _take_liger(model, use_gpu=True)
    taken: list[Any] = []
    monkeypatch.setattr(trainer, "apply_liger_kernel", lambda *given: taken.extend(given))
    _take_liger(model, use_gpu=True)
    assert taken == [model, {"cross_entropy": False, "fused_linear_cross_entropy": False}]


@pytest.mark.parametrize(("version", "is_left"), [(92000, False), (92501, False), (92600, True), (None, False)])
def test_cudnn_attention_is_left_out_if_broken(version: int | None, is_left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: version)
    leave_out_broken_kernels()
    assert torch.backends.cuda.cudnn_sdp_enabled() == is_left
    assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.mem_efficient_sdp_enabled()


NO_NODES = SharedPathNodes((), None)


def test_workers_take_the_gpus_of_their_nodes_or_share_the_largest_evenly() -> None:
    nodes = SharedPathNodes((NodeResources(8, 2), NodeResources(4, 1)), None)
    assert size_workers(0, nodes, use_gpu=True) == Workers(3, 1, True)
    assert size_workers(8, nodes, use_gpu=True) == Workers(8, 1, True)
    assert size_workers(8, nodes, use_gpu=True).list_missing(nodes) == {"GPU": 5}
    assert size_workers(0, NO_NODES, use_gpu=True) == Workers(1, 1, True)
    nodes = SharedPathNodes((NodeResources(8, 0), NodeResources(4, 0)), None)
    assert size_workers(0, nodes, use_gpu=False) == Workers(1, 8, False)
    assert size_workers(4, nodes, use_gpu=False) == Workers(4, 4, False)
    assert size_workers(40, nodes, use_gpu=False) == Workers(40, 1, False)
    assert size_workers(4, nodes, use_gpu=False).list_missing(nodes) == {"CPU": 4}
    assert size_workers(0, NO_NODES, use_gpu=False).list_missing(NO_NODES) == {"CPU": 1}


def test_fewer_workers_take_more_batches_a_step_or_none_at_all() -> None:
    rows = Path("rows.jsonl")
    config = FinetuneConfig(gradient_accumulation=3)
    job = TrainJob(config, "model", rows, rows, (), use_gpu=False, num_workers=4, num_threads=1)
    for left, batches in ((4, 3), (3, 4), (2, 6), (1, 12)):
        smaller = divide_steps(job, left)
        assert (smaller.num_workers, smaller.config.gradient_accumulation) == (left, batches)
    whole = TrainJob(FinetuneConfig(), "model", rows, rows, (), use_gpu=False, num_workers=4, num_threads=1)
    with pytest.raises(TrainError, match=r"room for 3 of 4 workers, .* the 4 batches .* number of workers that divides 4\."):
        divide_steps(whole, 3)
