"""Adapters: what one must be to be loaded beside its model, and what is refused before an engine starts or after training."""

import json
import math
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.adapter import check_adapter, check_adapter_fits, read_base_model, write_base_model
from drag_ray.engine.models.adapter_weights import check_weights
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.errors import ConfigError, NotFiniteError, TrainError
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.outputs.publication import publish_adapter
from drag_ray.finetune.training_folder import ADAPTER_DIR_NAME, Description


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": 64, "num_hidden_layers": 2}))
    return folder


def write_adapter(
    folder: Path, hidden_size: int = 64, layer: int = 1, weight: str = "", value: float = 1.0, **settings: object
) -> Path:
    """An adapter of q_proj in a layer, and perhaps of one more weight, whose partner is written too if it is one of LoRA's."""
    folder.mkdir()
    config = {"r": 8, "lora_alpha": 16, "base_model_name_or_path": "other", **settings}
    (folder / "adapter_config.json").write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
    rank = int(str(config["r"] or 8))
    weights: dict[str, torch.Tensor] = {}
    for name in (f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_A.weight", *([weight] if weight else [])):
        weights[name] = torch.ones(rank, hidden_size)
        weights[name.replace("lora_A", "lora_B")] = torch.full((hidden_size, rank), value)
    save_file(weights, folder / "adapter_model.safetensors")
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
        ({"rank_pattern": {"q_proj": 64}}, r"rank_pattern \{'q_proj': 64\}"),
        ({"alpha_pattern": {"(a+)+$": 64}}, r"alpha_pattern"),
        ({"r": None}, "not that of a LoRA adapter"),
        ({"r": 0}, "not that of a LoRA adapter"),
        ({"lora_alpha": None}, "lora_alpha None"),
        ({"lora_alpha": 0}, "lora_alpha 0"),
        ({"lora_alpha": math.nan}, "lora_alpha nan"),
        ({"peft_type": "ADALORA"}, "peft_type ADALORA"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights pissa"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"value": 0.0}, "has learned nothing"),
        ({"value": math.nan}, "is not finite"),
        ({"value": math.inf}, "is not finite"),
        ({"modules_to_save": ["lm_head"]}, r"cannot use all of this adapter: modules_to_save \['lm_head'\]"),
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
    write_weights(model_dir, "layers.1.self_attn.q_proj", "layers.0.mlp.experts", is_split=is_split)
    check(model_dir, write_adapter(tmp_path / "fits", target_modules=["q_proj", "up_proj", "lm_head"]))
    lost = "base_model.model.model.layers.1.cross_attn.q_proj.lora_A.weight"
    with pytest.raises(ConfigError, match=r"would pass over them: model\.layers\.1\.cross_attn\.q_proj, banana\."):
        check(model_dir, write_adapter(tmp_path / "lost", weight=lost, target_modules=["q_proj", "banana"]))
    expert = "base_model.model.model.layers.0.mlp.experts.base_layer.lora_A.weight"
    check(model_dir, write_adapter(tmp_path / "experts", weight=expert, target_modules=".*q_proj"))


@pytest.mark.parametrize("place", ["model.language_model.", "language_model.model.", "model.model.", ""])
def test_modules_of_a_text_model_have_the_whole_of_their_names(model_dir: Path, tmp_path: Path, place: str) -> None:
    """vLLM applies none of these, and the base model would answer by the adapter's name."""
    write_weights(model_dir, "layers.1.self_attn.q_proj")
    other = f"base_model.model.{place}layers.1.self_attn.q_proj.lora_A.weight"
    with pytest.raises(ConfigError, match=rf"pass over them: {place}layers\.1\.self_attn\.q_proj\."):
        check(model_dir, write_adapter(tmp_path / "adapter", weight=other))


@pytest.mark.parametrize(
    ("checkpoint", "taken"),
    [
        ("", {"model.", "model.language_model.", "language_model.model."}),  # as Qwen2.5-VL's
        ("language_model.", {"model.language_model.", "language_model.model."}),  # as Qwen3-VL's
    ],
)
def test_modules_of_a_multimodal_model_have_the_names_that_vllm_maps(tmp_path: Path, checkpoint: str, taken: set[str]) -> None:
    model_dir = tmp_path / "model"
    model_dir.mkdir()
    text = {"hidden_size": 64, "num_hidden_layers": 2}
    (model_dir / "config.json").write_text(json.dumps({"text_config": text, "vision_config": {}}))
    write_weights(model_dir, f"{checkpoint}layers.1.self_attn.q_proj")
    modules = read_base_model(str(model_dir)).modules
    places = ("model.", "model.language_model.", "language_model.model.", "", "model.model.")
    assert {place for place in places if f"{place}layers.1.self_attn.q_proj" in modules} == taken


def test_matrices_of_another_rank_than_is_said_or_without_a_partner_are_refused(model_dir: Path, tmp_path: Path) -> None:
    name = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"
    for place, weights in enumerate(
        (
            {name: torch.ones(64, 64), name.replace("lora_A", "lora_B"): torch.ones(64, 64)},
            {name: torch.ones(8, 64), name.replace("lora_A", "lora_B"): torch.ones(64, 4)},
            {name: torch.ones(8, 64)},
        )
    ):
        adapter = write_adapter(tmp_path / str(place))
        save_file(weights, adapter / "adapter_model.safetensors")
        with pytest.raises(ConfigError, match=r"cannot use all of this adapter: .*q_proj\.lora_A\.weight \["):
            check(model_dir, adapter)


@pytest.mark.parametrize("name", ["adapter_model.bin", "adapter_model.pt"])
def test_weights_in_pickles_are_refused(model_dir: Path, tmp_path: Path, name: str) -> None:
    adapter = write_adapter(tmp_path / "adapter")
    torch.save({}, adapter / name)
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"weights in another form \(.bin, .pt\) are not read"):
        check(model_dir, adapter)


def test_a_folder_that_is_no_adapter_is_refused(model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine.adapter .*is not a PEFT adapter folder"):
        check(model_dir, tmp_path / "nothing")
    broken = write_adapter(tmp_path / "adapter")
    (broken / "adapter_model.safetensors").write_bytes(b"\x08")
    with pytest.raises(ConfigError, match="not a readable safetensors file"):
        check(model_dir, broken)


LAYER = "base_model.model.model.layers.1.self_attn.q_proj"


def write_layer(folder: Path, lora_a: float = 1.0, lora_b: float = 1.0) -> Path:
    folder.mkdir(exist_ok=True)
    weights = {f"{LAYER}.lora_A.weight": torch.ones(2, 4), f"{LAYER}.lora_B.weight": torch.zeros(4, 2)}
    weights[f"{LAYER}.lora_A.weight"][1, 2] = lora_a
    weights[f"{LAYER}.lora_B.weight"][2, 1] = lora_b
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


def test_an_adapter_that_has_learned_is_let_through_unless_it_is_still_the_one_that_it_started_from(tmp_path: Path) -> None:
    check_weights(write_layer(tmp_path))
    start = write_layer(tmp_path / "start", lora_b=0.5)
    with pytest.raises(TrainError, match=r"all of lora_B is as in .*/start, as before training"):
        check_weights(write_layer(tmp_path / "same", lora_b=0.5), start)
    check_weights(write_layer(tmp_path / "trained", lora_b=0.25), start)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"lora_b": -torch.inf}, NotFiniteError, r"q_proj\.lora_B\.weight is not finite.*finetune\.learning_rate"),
        ({"lora_b": 0.0}, TrainError, r"all of lora_B is 0, as before training"),
    ],
)
def test_a_broken_adapter_is_not_published(
    tmp_path: Path, values: dict[str, float], error: type[TrainError], message: str
) -> None:
    checkpoint_dir = write_layer(tmp_path / "checkpoint", **values)
    described = Description(FinetuneConfig(merge=False), {}, {}, None)
    with pytest.raises(error, match=message):
        publish_adapter(checkpoint_dir, str(embedded_model_dir()), described, None, tmp_path)
    assert not (tmp_path / ADAPTER_DIR_NAME).exists()


def _make_model(folder: Path, **more: object) -> str:
    folder.mkdir()
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, **more}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_an_adapter_fits_the_base_it_was_trained_on_wherever_that_lies(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter")
    write_base_model(adapter, read_base_model(_make_model(tmp_path / "here", transformers_version="5.0"), name="mine"))
    check_adapter_fits(read_base_model(_make_model(tmp_path / "there", transformers_version="5.1")), adapter)


def test_an_adapter_of_another_base_is_refused_and_both_are_named(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter")
    write_base_model(adapter, read_base_model(_make_model(tmp_path / "small"), name="small-model"))
    other = read_base_model(_make_model(tmp_path / "other", rope_theta=7), name="other-model")
    with pytest.raises(TrainError, match=r"trained on 'small-model' .* cannot be used with 'other-model'"):
        check_adapter_fits(other, adapter)


def test_a_vision_language_model_is_known_by_its_language_part(tmp_path: Path) -> None:
    folder = tmp_path / "vlm"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"text_config": {"hidden_size": 64, "num_hidden_layers": 2}}))
    check_adapter_fits(read_base_model(str(folder)), write_adapter(tmp_path / "adapter"))


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
    config = EngineConfig(model=_make_model(tmp_path / "model"), adapter=str(write_adapter(tmp_path / "adapter")))
    check_adapter(config)
    (tmp_path / "adapter" / name).write_bytes(content)
    with pytest.raises(ConfigError, match=Path(name).name):
        check_adapter(config)


def test_a_weight_without_a_shape_says_nothing_of_the_model(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter")
    (adapter / "adapter_model.safetensors").write_bytes(_pack(f'{{"{_WEIGHT}": {{"shape": []}}}}'))
    check_adapter_fits(read_base_model(_make_model(tmp_path / "model")), adapter)
