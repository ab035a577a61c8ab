"""The card that finetune leaves beside an adapter."""

from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from drag_ray.engine.models.adapter import BaseModel
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.publication import write_card
from drag_ray.storage.artifacts import compute_file_fingerprint

COUNTS = {"rows": 594, "steps": 30, "first_loss": 2.5, "last_loss": 1.25, "eval_loss_before": None}


def read_card(folder: Path, base_name: str) -> ModelCard:
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    base = BaseModel(base_name, "base-fingerprint", 64, 2)
    write_card(folder, FinetuneConfig(method="dpo"), base, COUNTS, {"format": "rows-fingerprint"})
    return ModelCard.load(folder / "README.md")


def test_a_card_is_read_by_the_hub_and_says_what_the_adapter_is(tmp_path: Path) -> None:
    card = read_card(tmp_path, "Qwen/Qwen3-VL-8B-Instruct")
    assert card.data.to_dict()["base_model"] == "Qwen/Qwen3-VL-8B-Instruct"
    assert (card.data.to_dict()["library_name"], card.data.to_dict()["tags"]) == ("peft", ["lora", "drag_ray", "dpo"])
    weights = compute_file_fingerprint(tmp_path / "adapter_model.safetensors")
    for words in (weights, "base-fingerprint", "rows-fingerprint", "| rows | 594 |", "| last_loss | 1.25 |", "learning_rate"):
        assert words in card.text, words
    assert "| eval_loss_before | not measured |" in card.text


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_card_names_the_embedded_model_by_its_origin_and_no_folder(tmp_path: Path, is_folder: bool) -> None:
    (tmp_path / "secret-path" / "my-model").mkdir(parents=True)
    card = read_card(tmp_path, str(tmp_path / "secret-path" / "my-model") if is_folder else "embedded")
    assert card.data.to_dict().get("base_model") == (None if is_folder else "HuggingFaceTB/SmolLM2-135M-Instruct")
    assert "secret-path" not in card.content
