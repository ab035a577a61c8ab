"""Start of a training: an adapter, the rows of a file, and prompts that are compared with those of the engine."""

import copy
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.testing import assert_close
from transformers import LlamaForCausalLM

from drag_ray.engine.config import EngineConfig
from drag_ray.errors import ConfigError, DataError, TrainError
from drag_ray.finetune import stage
from drag_ray.finetune.config import FinetuneConfig, FinetuneSections
from drag_ray.finetune.rows.tokenized_rows import read_rows
from drag_ray.finetune.stage import compares_prompts
from drag_ray.finetune.start import START_NAME, keep_start, load_start, use_start
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import Manifest, write_manifest

INPUTS = torch.tensor([[5, 6, 7, 8, 9]])


def describe(**options: Any) -> LoraConfig:
    return LoraConfig(
        **({"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM"} | options)
    )


def make_start(model: LlamaForCausalLM, folder: Path, **options: Any) -> torch.Tensor:
    """Write an adapter that changes the model, and return the logits of both together."""
    torch.manual_seed(1)
    adapted: Any = get_peft_model(copy.deepcopy(model), describe(lora_dropout=0.5, **options))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            weight.data.normal_()
    adapted.save_pretrained(folder)
    return adapted.eval()(INPUTS).logits


def test_the_adapter_is_trained_on_beside_a_frozen_copy_of_itself(model: LlamaForCausalLM, tmp_path: Path) -> None:
    expected = make_start(model, tmp_path)
    started: Any = load_start(copy.deepcopy(model), describe(), tmp_path, in_float32=True)
    keep_start(started)
    assert_close(started(INPUTS).logits, expected)
    trained = {name for name, weight in started.named_parameters() if weight.requires_grad}
    assert {name.split(".")[-2] for name in trained} == {"default"}
    assert len(trained) == 8  # two matrices for two modules of two layers
    for name, weight in started.named_parameters():
        if name in trained:
            weight.data.add_(0.5)
    assert (started(INPUTS).logits - expected).abs().max() > 0.1
    with use_start(started), torch.no_grad():
        assert_close(started(INPUTS).logits, expected)
    assert {name for name, weight in started.named_parameters() if weight.requires_grad} == trained


def test_the_copy_is_of_the_type_of_what_is_trained_whoever_made_it(model: LlamaForCausalLM, tmp_path: Path) -> None:
    make_start(model, tmp_path)
    started: Any = load_start(copy.deepcopy(model).bfloat16(), describe(), tmp_path, in_float32=False)
    started.add_adapter(START_NAME, started.peft_config["default"])  # as TRL does, which casts it to float32
    keep_start(started)
    weights = dict(started.named_parameters())
    copies = {name: weight for name, weight in weights.items() if f".{START_NAME}." in name}
    assert len(copies) == 8
    for name, weight in copies.items():
        assert weight.dtype == torch.bfloat16
        assert_close(weight, weights[name.replace(f".{START_NAME}.", ".default.")], rtol=0, atol=0)


def test_what_a_new_adapter_starts_from_is_the_base_model(model: LlamaForCausalLM) -> None:
    trained: Any = get_peft_model(copy.deepcopy(model), describe(init_lora_weights=False))
    assert (trained(INPUTS).logits - model(INPUTS).logits).abs().max() > 1e-3
    with use_start(trained):
        assert_close(trained(INPUTS).logits, model(INPUTS).logits)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"r": 3}, r"differs in r 3 \(finetune\.lora_r: 2\)\. .*finetune\.start base"),
        ({"lora_alpha": 2}, r"lora_alpha 2 \(finetune\.lora_alpha: 4\)"),
        ({"target_modules": ["q_proj"]}, r"target_modules \['q_proj'\] \(finetune\.target_modules: \['down_proj', 'q_proj'\]\)"),
        ({"use_rslora": True}, r"use_rslora True \(finetune.lora: False\)"),
    ],
)
def test_an_adapter_of_another_shape_is_refused_with_what_differs(
    model: LlamaForCausalLM, tmp_path: Path, options: dict[str, Any], complaint: str
) -> None:
    make_start(model, tmp_path, **options)
    with pytest.raises(TrainError, match=rf"engine\.adapter '{tmp_path}': .*{complaint}"):
        load_start(copy.deepcopy(model), describe(), tmp_path, in_float32=True)


def test_what_the_engine_names_is_what_training_starts_from_and_no_adapter_is_refused_at_once(tmp_path: Path) -> None:
    engine = EngineConfig(adapter=str(tmp_path))
    assert FinetuneSections(engine, FinetuneConfig()).find_start() == tmp_path
    assert FinetuneSections(engine, FinetuneConfig(start="base")).find_start() is None
    assert FinetuneSections(EngineConfig(), FinetuneConfig()).find_start() is None
    sections = FinetuneSections(EngineConfig(adapter=str(tmp_path)), FinetuneConfig())
    with pytest.raises(ConfigError, match=r"engine\.adapter .*no such file"):
        stage.run(sections, Inputs({}), None)  # type: ignore[arg-type]
    assert not compares_prompts(FinetuneSections(EngineConfig(), FinetuneConfig()), Inputs({"format": tmp_path}, tmp_path))


def test_training_is_given_the_images_of_tools_and_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lineage(tmp_path, {})
    for name in ("format/sft_query", "format/images", "index"):
        (tmp_path / name).mkdir()
    write_rows(tmp_path / "format" / "sft_query", ROWS)
    given: list[Any] = []
    monkeypatch.setattr(stage, "_train", lambda *arguments: given.append(arguments) or TrainError("enough"))
    folder: Any = SimpleNamespace(path=tmp_path / "finetune")
    with pytest.raises(TrainError, match="enough"):
        stage.run(
            FinetuneSections(EngineConfig(), FinetuneConfig()), Inputs({n: tmp_path / n for n in ("format", "index")}), folder
        )
    [[_, _, _, rows_dir, image_dirs, *_]] = given
    assert rows_dir == tmp_path / "format" / "sft_query"
    names = ("format/images", "index/page_images", "index/question_images")
    assert image_dirs == tuple(tmp_path / name for name in names)


OF_ENGINE = {"engine": {"model": "embedded"}}


def write_lineage(run_dir: Path, config: dict[str, object]) -> Inputs:
    """The folders of a format stage and of the collection that it was made from, with these options."""
    collected = Manifest("collect", "1", origin={"config": config})
    formatted = Manifest(
        "format", "2", origin={"reads": {"collect": "collect"}, "inputs": {"collect": collected.outcome_fingerprint}}
    )
    for manifest in (collected, formatted):
        (run_dir / manifest.stage).mkdir()
        write_manifest(run_dir / manifest.stage, manifest)
    return Inputs({"format": run_dir / "format"}, run_dir)


@pytest.mark.parametrize(
    ("config", "model", "compares"),
    [(OF_ENGINE, "embedded", True), (OF_ENGINE, "student", False), ({}, "embedded", False)],
    ids=["its own", "a teacher's", "from elsewhere"],
)
def test_prompts_are_compared_where_the_model_itself_collected(
    tmp_path: Path, config: dict[str, object], model: str, compares: bool
) -> None:
    inputs = write_lineage(tmp_path, config)
    sections = FinetuneSections(EngineConfig(model=model), FinetuneConfig())
    assert compares_prompts(sections, inputs) is compares
    assert not compares_prompts(replace(sections, finetune=FinetuneConfig(compare_prompts=False)), inputs)


ROWS: list[dict[str, Any]] = [{"question_id": f"q{number // 3:02}", "place": number} for number in range(90)]


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_are_read_in_their_order_or_so_many_of_drawn_questions(tmp_path: Path) -> None:
    path = write_rows(tmp_path, ROWS)
    assert list(read_rows(path)) == list(read_rows(path, 90)) == list(read_rows(path, 1000, 7)) == ROWS
    drawn: list[Any] = list(read_rows(path, 31, 7))
    assert len(drawn) == 31
    assert drawn == sorted(drawn, key=lambda row: row["place"])
    found = Counter(row["question_id"] for row in drawn)
    assert sorted(found.values()) == [1] + [3] * 10
    assert min(found) < "q10"
    assert max(found) >= "q20"
    assert list(read_rows(path, 31, 7)) == drawn
    assert list(read_rows(path, 31, 8)) != drawn
    path = write_rows(tmp_path, [{"place": number} for number in range(50)])
    assert len(list(read_rows(path, 20))) == 20


@pytest.mark.parametrize("limit", [0, 5])
def test_what_is_no_row_is_refused(tmp_path: Path, limit: int) -> None:
    with pytest.raises(DataError, match=r"no such file\. Run: python jobs/format\.py"):
        list(read_rows(tmp_path / "gone.jsonl", limit))
    (tmp_path / "train.jsonl").write_text('{"place": 1}\nnothing\n')
    with pytest.raises(DataError, match="not one JSON object a line"):
        list(read_rows(tmp_path / "train.jsonl", limit))
