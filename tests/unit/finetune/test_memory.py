"""Estimated GPU memory of a training beside measured figures, and the handling of a memory that is full."""

import json
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from qwen3_vl_shapes import SHAPES_TEXT
from training_cases import SHAPE
from transformers import AutoConfig, LlamaConfig, Qwen2Config

from drag_ray.errors import GpuMemoryError, TrainError
from drag_ray.finetune.arguments import ZeroStage
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.memory import ModelShapes, check_memory, explain_full_memory
from drag_ray.finetune.stage import Outcome, _train_within_memory

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "finetune_packing.json"
IN_FOUR_BITS: dict[str, Any] = {"quant_method": "bitsandbytes", "load_in_4bit": True}


@pytest.fixture(scope="module")
def seven_b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seven_b")
    Qwen2Config.from_dict(SHAPES_TEXT["7b"]).save_pretrained(folder)
    return folder


def describe(model: Path, num_workers: int = 1, **options: Any) -> TrainJob:
    return TrainJob(FinetuneConfig.model_validate(options), str(model), model, model, (), True, num_workers, 1)


@pytest.mark.parametrize(("way", "options"), [("packed", {}), ("packed+liger", {"liger": True})])
def test_an_estimate_is_within_a_twentieth_of_what_was_measured(seven_b: Path, way: str, options: dict[str, Any]) -> None:
    found = json.loads(MEASURED.read_text())["results"][f"7b, rows of 4096, {way}"]
    estimate = ModelShapes(str(seven_b)).estimate(describe(seven_b, **options), "off", found["tokens"] // found["steps"])
    assert estimate.total == pytest.approx(found["gpu_memory_gib"], rel=0.05)


@pytest.mark.parametrize(
    ("num_workers", "zero_stage", "options", "weights", "learning"),
    [
        (1, "off", {}, 7_615_616_512 * 2, 40_370_176 * 16),
        (1, "off", {"arguments": {"optim": "adamw_8bit"}}, 7_615_616_512 * 2, 40_370_176 * 10),
        (1, "off", {"quantization": "int8"}, 7_615_616_512 * 2 - 6_525_288_448, 40_370_176 * 16),
        (1, "off", {"parts": ["language"]}, 7_615_616_512 * 4, 7_615_616_512 * 12),
        (4, "zero2", {"parts": ["language"]}, 7_615_616_512 * 2, 7_615_616_512 * 14 / 4),
        (4, "zero3", {}, 7_615_616_512 * 2 / 4, 40_370_176 * 16 / 4),
    ],
)
def test_weights_and_what_is_kept_of_each_are_counted(
    seven_b: Path, num_workers: int, zero_stage: ZeroStage, options: dict[str, Any], weights: float, learning: float
) -> None:
    estimate = ModelShapes(str(seven_b)).estimate(describe(seven_b, num_workers, **options), zero_stage, 0)
    assert (estimate.weights * 2**30, estimate.learning * 2**30, estimate.tokens) == (weights, learning, 0)


def test_fewer_things_are_kept_of_a_token_with_checkpointing(seven_b: Path) -> None:
    shapes = ModelShapes(str(seven_b))
    chosen: list[dict[str, Any]] = [{}, {"gradient_checkpointing": True}]
    plain, checkpointed = (shapes.estimate(describe(seven_b, **options), "off", 2**20).tokens * 2**10 for options in chosen)
    layer = 8 * 3584 + 4 * (3584 + 512) + 6 * 18944 + 15 * 3584 + 3 * (3584 + 18944)
    assert plain == 29 * layer + 16 * 18944
    assert checkpointed == 28 * 2 * 3584 + layer + 16 * 18944


def test_what_cannot_fit_is_refused_with_what_would_and_the_rest_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    LlamaConfig(**SHAPE).save_pretrained(tmp_path)
    rows = [{"input_ids": [0] * length} for length in (2**20, 10, 2**20)]
    with caplog.at_level(logging.INFO):
        check_memory(describe(tmp_path, batch_size=2), "off", rows, None, 10.0)
        check_memory(describe(tmp_path, batch_size=2), "off", rows, None, 0.5)
        check_memory(describe(tmp_path, num_workers=2), "off", rows, None, 0.0)  # the others would wait for the one that refuses
    fits, tight, _ = (record.getMessage() for record in caplog.records)
    assert fits.startswith("finetune: about 6.")
    assert fits.endswith("of 10.0 GiB of each GPU: weights 0.0, gradients and optimizer 0.0, the longest batch 5.7")
    assert ", which is too much. finetune.gradient_checkpointing: " in tight
    with pytest.raises(
        TrainError, match=r"of 0.0 GiB .*too much.*batch_size 1 too: .*and quantization nf4: .*zero3 on 2 GPUs at least: "
    ):
        check_memory(describe(tmp_path), "off", rows, None, 0.0)


def test_the_most_rows_at_once_that_fit_are_named_before_the_first_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    LlamaConfig(**SHAPE).save_pretrained(tmp_path)
    job, rows = describe(tmp_path, batch_size=12, gradient_accumulation=2), [{"input_ids": [0] * 2**18}] * 12
    of_four, of_two = (ModelShapes(str(tmp_path)).estimate(job, "off", size * 2**18).total for size in (4, 2))
    with caplog.at_level(logging.INFO):
        for gpu_gib in (of_four + 0.01, of_two + 0.01, 1.0):
            check_memory(job, "off", rows, None, gpu_gib)
    four, two, none = (record.getMessage().partition(", which is too much. ")[2] for record in caplog.records)
    assert four.startswith(f"finetune.batch_size 4 and gradient_accumulation 6: {of_four:.1f} GiB, finetune.gradient_check")
    assert two.startswith("finetune.batch_size 2 and gradient_accumulation 12: ")  # a fifth would not be all 24 rows
    assert none.startswith("finetune.gradient_checkpointing: ")


@pytest.mark.parametrize(
    ("zero_stage", "options", "bytes_of_a_weight"),
    [
        ("off", {}, 12),
        ("zero3", {}, 14),
        ("zero3", {"arguments": {"optim": "adamw_8bit"}}, 8),
        ("off", {"arguments": {"optim": "adafactor"}}, 4),
    ],
)
def test_a_checkpoint_holds_all_weights_and_the_states_of_their_optimizer(
    seven_b: Path, zero_stage: ZeroStage, options: dict[str, Any], bytes_of_a_weight: int
) -> None:
    found = ModelShapes(str(seven_b)).estimate_checkpoint(describe(seven_b, parts=["language"], **options), zero_stage)
    assert sum(found) * 2**30 == 7_615_616_512 * bytes_of_a_weight


@pytest.mark.parametrize(
    ("num_rows", "step", "weights", "states"),
    [(9, 0, 2, 2), (3, 0, 2, 1), (1, 0, 2, 0), (9, 1, 2, 2), (9, 4, 2, 1), (9, 5, 2, 0)],  # the last is to be published alone
)
def test_a_disk_is_refused_that_cannot_hold_a_checkpoint_beside_the_one_before(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    num_rows: int,
    step: int,
    weights: int,
    states: int,
) -> None:
    """With two rows a step and a checkpoint a step. That which a training goes on from has its space already."""
    LlamaConfig(**SHAPE).save_pretrained(tmp_path)
    options: dict[str, Any] = {"parts": ["language"], "batch_size": 2, "checkpoint_steps": 1, "epochs": 1}
    of_weights, of_states = ModelShapes(str(tmp_path)).estimate_checkpoint(describe(tmp_path, **options), "off")
    needed = weights * of_weights + states * of_states
    kept = tmp_path / "checkpoint" / "global_step1"
    kept.mkdir(parents=True)
    (kept / "states").write_bytes(bytes(int(bool(step) * (of_weights + of_states) * 2**30)))
    (kept.parent / "trainer_state.json").write_text(json.dumps({"global_step": step}))

    def check(share: float, **changed: Any) -> None:
        free = share * needed * 2**30 - (kept / "states").stat().st_size
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
        resume_from = tmp_path / "checkpoint" if step else None
        check_memory(describe(tmp_path, **(options | changed)), "off", [{"input_ids": [0]}] * num_rows, resume_from, 10.0)

    with caplog.at_level(logging.INFO):
        check(1.1)
        check(0.3, parts=["adapter"])  # which is small
        check(0.3, num_workers=2)
    whole, adapter, of_two = (record.getMessage() for record in caplog.records)
    assert f"; {needed:.1f} of {1.1 * needed:.1f} GiB that the run's disk has free: weights " in whole
    assert "too much" not in whole
    assert "disk" not in adapter
    assert of_two.endswith("which is too much. Set run_dir to a folder on a larger disk")
    with pytest.raises(TrainError, match="larger disk"):
        check(0.9)


@pytest.mark.parametrize(
    "config", [{"model_type": "gpt_neo"}, {"model_type": "llama", **SHAPE, "quantization_config": IN_FOUR_BITS}]
)
def test_a_model_that_cannot_be_estimated_is_trained_all_the_same(
    config: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    AutoConfig.for_model(**config).save_pretrained(tmp_path)
    with caplog.at_level(logging.INFO):
        check_memory(describe(tmp_path), "off", [{"input_ids": [0]}], None, 0.0)
    assert "the GPU memory of this training cannot be estimated" in caplog.text


def test_a_full_memory_is_explained_where_no_other_process_waits(tmp_path: Path) -> None:
    for num_workers, kind in ((1, GpuMemoryError), (2, torch.OutOfMemoryError)):
        with pytest.raises(kind, match="out of memory"), explain_full_memory(describe(tmp_path, num_workers)):
            raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("is_raised", [False, True])
def test_rows_at_once_are_halved_until_they_fit_and_a_step_stays_what_it_is(is_raised: bool) -> None:
    tried: list[tuple[int, int]] = []

    def train(settings: FinetuneConfig) -> Outcome:
        tried.append((settings.batch_size, settings.gradient_accumulation))
        error = GpuMemoryError("CUDA out of memory")
        if settings.batch_size > 3 and is_raised:
            raise error
        return error if settings.batch_size > 3 else {"counts": {}}

    settings = FinetuneConfig(batch_size=12, gradient_accumulation=2)
    refused = _train_within_memory(train, settings)
    assert str(refused).endswith(
        "Set finetune.batch_size 6 and finetune.gradient_accumulation 4, as finetune.halve_batch does, "
        "or finetune.gradient_checkpointing."
    )
    assert _train_within_memory(train, settings.model_copy(update={"halve_batch": True})) == {"counts": {}}
    assert tried == [(12, 2), (12, 2), (6, 4), (3, 8)]
    alone = GpuMemoryError("CUDA out of memory")
    refused = _train_within_memory(lambda settings: alone, FinetuneConfig(batch_size=1, halve_batch=True))
    assert "No fewer rows can be learned at once. Set finetune.gradient_checkpointing, " in str(refused)
