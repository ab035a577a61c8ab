"""The number format of a training, where it is left open and where it is named."""

from pathlib import Path
from typing import Any, Literal

import pytest

from drag_ray.finetune.arguments import build_options
from drag_ray.finetune.config import FinetuneConfig, TrainJob


def options_of(dtype: Literal["auto", "bfloat16", "float32"], *, use_gpu: bool) -> dict[str, Any]:
    rows = Path("rows.jsonl")
    job = TrainJob(FinetuneConfig(dtype=dtype), "model", rows, rows, (), use_gpu=use_gpu, num_workers=1, num_threads=1)
    return build_options(job, "off", "scratch", {"images": 0, "validation_rows": 0}, resumes=False)


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


def test_a_merged_model_is_the_same_whichever_processor_trained() -> None:
    assert FinetuneConfig().dtype == "auto"
    assert FinetuneConfig().merged_dtype == FinetuneConfig(dtype="bfloat16").merged_dtype == "bfloat16"
    assert FinetuneConfig(dtype="float32").merged_dtype == "float32"


def test_no_tracker_of_experiments_is_told() -> None:
    assert options_of("auto", use_gpu=False)["report_to"] == "none"
