"""The stage rl on pictures of pages, with the shapes of Qwen3-VL-8B but for its words, and random weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from picture_rl import NUM_CANDIDATES, STEPS, configure, write_pictures
from qwen3_vl_shapes import SHAPES_8B, drop_words, write_model, write_random_weights

from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.finetune.rows.tokenized_rows import read_rows
from drag_ray.finetune.training_folder import read_curve
from drag_ray.pipeline.runner import run_stages
from drag_ray.pipeline.stages import STAGES
from drag_ray.rl.course import ROWS_NAME
from drag_ray.rl.learning import locate_step

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


def test_a_model_of_real_shapes_learns_from_pictures_while_it_collects(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", embedded_model_dir(), drop_words(SHAPES_8B))
    write_random_weights(model)
    write_pictures(tmp_path / "run", (960, 1280))
    engine = {"device": "gpu", "dtype": "bfloat16", "max_model_len": 8192, "gpu_memory_utilization": 0.3}
    training = {"device": "gpu", "dtype": "bfloat16", "learning_rate": 1e-4, "lora_r": 16, "max_length": 8192}
    config = configure(tmp_path / "run", model, engine=engine, **training)
    with connect(ClusterConfig()):
        run_stages([STAGES["rl"]], config)
    points = [point for point in read_curve(tmp_path / "run" / "rl") if "reward" in point]
    print(*points, sep="\n")
    assert [point["step"] for point in points] == list(range(1, STEPS + 1))
    for step in range(1, STEPS + 1):
        rows: list[dict[str, Any]] = [dict(row) for row in read_rows(locate_step(tmp_path / "run" / "rl", step) / ROWS_NAME)]
        assert rows
        assert all(len(row["images"]) == NUM_CANDIDATES for row in rows)
    assert all(abs(point["engine_kl"]) < 0.05 for point in points)  # in bfloat16, of words that are all about equally likely
    assert (tmp_path / "run" / "rl" / "adapter" / "adapter_model.safetensors").exists()
