"""An adapter that cannot be used is refused before an engine starts."""

import json
import struct
from pathlib import Path

import pytest

from drag_ray.engine.adapter import check_adapter
from drag_ray.engine.config import EngineConfig
from drag_ray.errors import ConfigError


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": 64, "num_hidden_layers": 2}))
    return folder


def write_adapter(folder: Path, hidden_size: int = 64, layer: int = 1, weight: str = "", **settings: object) -> Path:
    folder.mkdir()
    config = {"r": 8, "base_model_name_or_path": "other", **settings}
    (folder / "adapter_config.json").write_text(json.dumps({name: value for name, value in config.items() if value}))
    key = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_A.weight"
    tensor = {"dtype": "F32", "shape": [8, hidden_size], "data_offsets": [0, 0]}
    header = json.dumps({"__metadata__": {"format": "pt"}, **{name: tensor for name in (key, weight) if name}}).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


def write_weights(model_dir: Path, *modules: str, is_split: bool = False) -> None:
    names = [f"model.{module}.weight" for module in ("embed_tokens", "layers.0.mlp.up_proj", *modules)]
    if is_split:
        index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}
        (model_dir / "model.safetensors.index.json").write_text(json.dumps(index))
        return
    header = json.dumps({name: {"dtype": "F32", "shape": [8, 8], "data_offsets": [0, 0]} for name in names}).encode()
    (model_dir / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def check(model_dir: Path, adapter_dir: Path, max_lora_rank: int = 16) -> None:
    check_adapter(EngineConfig(model=str(model_dir), adapter=str(adapter_dir), max_lora_rank=max_lora_rank))


def test_an_adapter_that_fits_is_taken(model_dir: Path, tmp_path: Path) -> None:
    check(model_dir, write_adapter(tmp_path / "adapter"))
    check_adapter(EngineConfig(model="no/such/model"))  # without an adapter nothing is looked at


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 128}, r"was trained on 'other' \(hidden size 128.*cannot be used with"),
        ({"layer": 2}, "at least 3 layers"),
        ({"r": 32}, r"has rank 32, engine.max_lora_rank is 16"),
        ({"rank_pattern": {"q_proj": 64}}, r"has rank 64"),
        ({"r": None}, "not that of a LoRA adapter"),
        ({"modules_to_save": ["lm_head"]}, r"would not write with all of this adapter: modules_to_save \['lm_head'\]"),
        ({"use_dora": True}, "use_dora True"),
        ({"bias": "all"}, "bias all"),
        ({"weight": "base_model.model.model.embed_tokens.lora_embedding_A"}, "lora_embedding_A"),
        ({"weight": "base_model.model.lm_head.lora_A.weight"}, r"lm_head.lora_A.weight.*merge it into its base model"),
        ({"weight": "base_model.model.model.visual.layers.0.attn.qkv.lora_A.weight"}, r"visual\.layers"),
        ({"weight": "base_model.model.mtp.layers.0.mlp.up_proj.lora_A.weight"}, r"mtp\.layers"),
        ({"task_type": "SEQ_CLS"}, "a reward model, which scores queries and writes none"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(model_dir: Path, tmp_path: Path, settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(model_dir, write_adapter(tmp_path / "adapter", **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_split", [False, True])
def test_modules_that_the_served_model_lacks_are_named(model_dir: Path, tmp_path: Path, is_split: bool) -> None:
    write_weights(model_dir, "language_model.layers.1.self_attn.q_proj", is_split=is_split)
    check(model_dir, write_adapter(tmp_path / "fits", target_modules=["q_proj", "up_proj", "lm_head"]))
    lost = "base_model.model.model.layers.1.cross_attn.q_proj.lora_A.weight"
    with pytest.raises(ConfigError, match=r"would pass over them: layers\.1\.cross_attn\.q_proj, banana\."):
        check(model_dir, write_adapter(tmp_path / "lost", weight=lost, target_modules=["q_proj", "banana"]))
    expert = "base_model.model.model.layers.0.mlp.experts.base_layer.lora_A.weight"
    check(model_dir, write_adapter(tmp_path / "experts", weight=expert, target_modules=".*q_proj"))


def test_a_folder_that_is_no_adapter_is_refused(model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine.adapter .*is not a PEFT adapter folder"):
        check(model_dir, tmp_path / "nothing")
    broken = write_adapter(tmp_path / "adapter")
    (broken / "adapter_model.safetensors").write_bytes(b"\x08")
    with pytest.raises(ConfigError, match="not a readable safetensors file"):
        check(model_dir, broken)
