from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from drag_ray.engine.models.adapter_weights import check_weights
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.errors import NotFiniteError, TrainError
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.outcome import ADAPTER_DIR_NAME
from drag_ray.finetune.publication import Description, publish_adapter

LAYER = "base_model.model.model.layers.1.self_attn.q_proj"


def write_adapter(folder: Path, lora_a: float = 1.0, lora_b: float = 1.0) -> Path:
    folder.mkdir(exist_ok=True)
    weights = {f"{LAYER}.lora_A.weight": torch.ones(2, 4), f"{LAYER}.lora_B.weight": torch.zeros(4, 2)}
    weights[f"{LAYER}.lora_A.weight"][1, 2] = lora_a
    weights[f"{LAYER}.lora_B.weight"][2, 1] = lora_b
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


def test_an_adapter_that_has_learned_is_let_through(tmp_path: Path) -> None:
    check_weights(write_adapter(tmp_path))


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"lora_a": torch.nan}, NotFiniteError, r"layers\.1\.self_attn\.q_proj\.lora_A\.weight is not finite"),
        ({"lora_b": -torch.inf}, NotFiniteError, r"q_proj\.lora_B\.weight is not finite.*finetune\.learning_rate"),
        ({"lora_b": 0.0}, TrainError, r"all of lora_B is 0, as before training"),
    ],
)
def test_a_broken_adapter_is_not_published(
    tmp_path: Path, values: dict[str, float], error: type[TrainError], message: str
) -> None:
    checkpoint_dir = write_adapter(tmp_path / "checkpoint", **values)
    described = Description(FinetuneConfig(merge=False), {}, {}, None)
    with pytest.raises(error, match=message):
        publish_adapter(checkpoint_dir, str(embedded_model_dir()), described, None, tmp_path)
    assert not (tmp_path / ADAPTER_DIR_NAME).exists()


def test_an_adapter_that_is_still_the_one_that_it_started_from_is_refused(tmp_path: Path) -> None:
    start = write_adapter(tmp_path / "start", lora_b=0.5)
    with pytest.raises(TrainError, match=r"all of lora_B is as in .*/start, as before training"):
        check_weights(write_adapter(tmp_path / "same", lora_b=0.5), start)
    check_weights(write_adapter(tmp_path / "trained", lora_b=0.25), start)
