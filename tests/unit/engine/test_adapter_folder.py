import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.adapter import check_adapter, check_adapter_fits, read_base_model, write_base_model
from drag_ray.errors import ConfigError, TrainError


def _make_model(folder: Path, hidden_size: int = 8, **more: object) -> str:
    folder.mkdir()
    config = {"model_type": "llama", "hidden_size": hidden_size, "num_hidden_layers": 2, **more}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def _make_adapter(folder: Path, hidden_size: int = 8, layer: int = 1) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 8, "base_model_name_or_path": "theirs"}))
    key = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_A.weight"
    weights = {key: torch.zeros(4, hidden_size), key.replace("lora_A", "lora_B"): torch.ones(hidden_size, 4)}
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


def test_an_adapter_fits_the_base_it_was_trained_on_wherever_that_lies(tmp_path: Path) -> None:
    adapter = _make_adapter(tmp_path / "adapter")
    write_base_model(adapter, read_base_model(_make_model(tmp_path / "here", transformers_version="5.0"), name="mine"))
    check_adapter_fits(read_base_model(_make_model(tmp_path / "there", transformers_version="5.1")), adapter)


def test_an_adapter_of_another_base_is_refused_and_both_are_named(tmp_path: Path) -> None:
    adapter = _make_adapter(tmp_path / "adapter")
    write_base_model(adapter, read_base_model(_make_model(tmp_path / "small"), name="small-model"))
    other = read_base_model(_make_model(tmp_path / "other", hidden_size=8, rope_theta=7), name="other-model")
    with pytest.raises(TrainError, match=r"trained on 'small-model' .* cannot be used with 'other-model'"):
        check_adapter_fits(other, adapter)


@pytest.mark.parametrize(("hidden_size", "layer"), [(16, 1), (8, 2)])
def test_an_adapter_without_a_note_is_judged_by_its_shapes(tmp_path: Path, hidden_size: int, layer: int) -> None:
    base = read_base_model(_make_model(tmp_path / "base"), name="base-model")
    check_adapter_fits(base, _make_adapter(tmp_path / "fits"))
    with pytest.raises(TrainError, match=rf"'theirs' \(hidden size {hidden_size}, at least {layer + 1} layers\)"):
        check_adapter_fits(base, _make_adapter(tmp_path / "adapter", hidden_size, layer))


def test_a_vision_language_model_is_known_by_its_language_part(tmp_path: Path) -> None:
    folder = tmp_path / "vlm"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"text_config": {"hidden_size": 8, "num_hidden_layers": 2}}))
    check_adapter_fits(read_base_model(str(folder)), _make_adapter(tmp_path / "adapter"))


def test_a_folder_that_is_no_adapter_is_named(tmp_path: Path) -> None:
    base = read_base_model(_make_model(tmp_path / "base"))
    with pytest.raises(TrainError, match=r"adapter_config.json: no such file"):
        check_adapter_fits(base, tmp_path / "nothing")
    adapter = _make_adapter(tmp_path / "cut")
    (adapter / "adapter_model.safetensors").write_bytes(b"\xff" * 4)
    with pytest.raises(TrainError, match="not a readable safetensors file"):
        check_adapter_fits(base, adapter)


_WEIGHT = "layers.0.self_attn.q_proj.lora_A.weight"


def _pack(header: str, num_bytes: int | None = None) -> bytes:
    return (len(header) if num_bytes is None else num_bytes).to_bytes(8, "little") + header.encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("adapter_config.json", b"[" * 100_000),
        ("adapter_config.json", b"[]"),
        ("adapter_config.json", b"null"),
        ("adapter_config.json", b'{"rank_pattern": {"q_proj": 6}}'),
        ("adapter_config.json", b'{"r": "8"}'),
        ("adapter_config.json", b'{"r": true, "lora_alpha": 1}'),
        ("adapter_config.json", b'{"r": 1' + b"0" * 5_000 + b"}"),
        ("drag_ray_base.json", b'{"name": "m"}'),
        ("drag_ray_base.json", b"3"),
        ("adapter_model.safetensors", _pack("{}", 2**64 - 1)),
        ("adapter_model.safetensors", _pack("{}", 2**40)),
        ("adapter_model.safetensors", _pack("[1]")),
        ("adapter_model.safetensors", _pack(f'{{"{_WEIGHT}": 1}}')),
        ("adapter_model.safetensors", _pack(f'{{"{_WEIGHT}": {{"shape": 8}}}}')),
        ("adapter_model.safetensors", _pack("[" * 100_000)),
        ("../model/config.json", b"[" * 100_000),
        ("../model/config.json", b'{"text_config": 1}'),
        ("../model/config.json", b'{"hidden_size": "8"}'),
    ],
)
def test_whatever_its_files_hold_an_adapter_is_refused_with_its_file(tmp_path: Path, name: str, content: bytes) -> None:
    config = EngineConfig(model=_make_model(tmp_path / "model"), adapter=str(_make_adapter(tmp_path / "adapter")))
    check_adapter(config)
    (tmp_path / "adapter" / name).write_bytes(content)
    with pytest.raises(ConfigError, match=Path(name).name):
        check_adapter(config)


def test_a_weight_without_a_shape_says_nothing_of_the_model(tmp_path: Path) -> None:
    adapter = _make_adapter(tmp_path / "adapter")
    (adapter / "adapter_model.safetensors").write_bytes(_pack(f'{{"{_WEIGHT}": {{"shape": []}}}}'))
    check_adapter_fits(read_base_model(_make_model(tmp_path / "model")), adapter)
