"""The shipped curricula with the shapes of Qwen3-VL-8B but for its words, and random weights."""

from pathlib import Path

import pytest
import torch
from curricula import check_curriculum, run_curriculum, write_documents
from qwen3_vl_shapes import SHAPES_8B, drop_words, write_model, write_random_weights

from drag_ray.engine.models.embedded import embedded_model_dir

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


@pytest.mark.parametrize(("name", "num_rounds"), [("v_retrver_curriculum", 2), ("opensearch_vl_curriculum", 1)])
def test_a_curriculum_of_real_shapes_comes_to_its_end_with_pictures(tmp_path: Path, name: str, num_rounds: int) -> None:
    model = write_model(tmp_path / "model", embedded_model_dir(), drop_words(SHAPES_8B))
    write_random_weights(model)
    write_documents(tmp_path, (595, 842))
    run_dir = run_curriculum(
        tmp_path,
        model,
        name,
        "",
        {"learning_rate": 2e-4, "epochs": 6},
        engine={"device": "gpu", "dtype": "bfloat16", "gpu_memory_utilization": 0.3},
        finetune={"device": "gpu", "dtype": "bfloat16", "learning_rate": 5e-5, "gradient_checkpointing": True},
    )
    check_curriculum(run_dir, name, num_rounds)
