"""Trainings of parts of a model: exactly these change, and what is written is a model that transformers load."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from training_cases import describe_job, write_job, write_model
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer
from transformers.quantizers.quantizers_utils import should_convert_module
from vision_engine import write_vision_model

from drag_ray.corpus.image_store import ImageStore
from drag_ray.engine.conversation import Row
from drag_ray.engine.models.pretrained import _UNQUANTIZED
from drag_ray.errors import NotFiniteError, TrainError
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.model_parts import check_trained, find_part, free_parts
from drag_ray.finetune.outputs.publication import Description, publish_model
from drag_ray.finetune.rows.training_rows import tokenize_training_rows
from drag_ray.finetune.trainer import train

pytestmark = pytest.mark.seconds

SEARCH = "<search>rotor</search>"


def learn(job: TrainJob, folder: Path, resume_from: Path | None = None) -> dict[str, Any]:
    """Train; the checkpoint of each step is in `folder`, by its number."""

    def keep(metrics: dict[str, Any], checkpoint_dir: Path) -> None:
        shutil.copytree(checkpoint_dir, folder / checkpoint_dir.name.rpartition("-")[2])

    return train(job, tokenize_training_rows(job), keep, resume_from)


def publish(job: TrainJob, checkpoint_dir: Path, stage_dir: Path) -> Path:
    stage_dir.mkdir()
    publish_model(checkpoint_dir, job.model, Description(job.config, {}, {}, None), stage_dir)
    return stage_dir / "model"


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def vision_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_model(tmp_path_factory.mktemp("vision"), hidden_size=16)


def list_changed_parts(before: Any, after: Any) -> set[str]:
    weights = dict(before.named_parameters())
    return {find_part(name) for name, weight in after.named_parameters() if not torch.equal(weight, weights[name])}


def test_all_weights_of_a_language_model_learn_and_go_on_from_a_checkpoint(text_model: Path, tmp_path: Path) -> None:
    options = {"method": "sft", "parts": ["language"], "learning_rate": 1e-2, "arguments": {"max_steps": 3}}
    job = write_job(tmp_path, text_model, options)
    straight = learn(job, tmp_path / "straight")
    shutil.copytree(tmp_path / "straight" / "1", tmp_path / "again" / "1")
    again = learn(job, tmp_path / "again", tmp_path / "again" / "1")
    losses = [[point["loss"] for point in outcome["curve"]] for outcome in (straight, again)]
    assert losses[0] == losses[1]
    states = [sorted(path.name for path in (tmp_path / "again" / step).glob("*.pt")) for step in ("2", "3")]
    assert states == [["optimizer.pt", "scheduler.pt"], []]  # the last one is published, and not gone on from
    ended = learn(job, tmp_path / "ended", tmp_path / "again" / "3")
    assert ended == again
    assert not (tmp_path / "ended").exists()
    model_dir = publish(job, tmp_path / "again" / "3", tmp_path / "finetune")
    loaded, trained = (AutoModelForCausalLM.from_pretrained(folder) for folder in (model_dir, tmp_path / "straight" / "3"))
    torch.testing.assert_close(loaded(torch.arange(8)[None]).logits, trained(torch.arange(8)[None]).logits)
    learned = {name for name, weight in trained.named_parameters() if weight.ne(0).any()}
    base = dict(AutoModelForCausalLM.from_pretrained(text_model).named_parameters())
    assert {name for name in learned if not torch.equal(base[name], dict(trained.named_parameters())[name])} == base.keys()
    assert AutoTokenizer.from_pretrained(model_dir).chat_template == AutoTokenizer.from_pretrained(text_model).chat_template
    assert (model_dir / "generation_config.json").exists()
    assert "A fine-tuned copy of `" in (model_dir / "README.md").read_text()


def write_image_rows(folder: Path, *shown: bool) -> ImageStore:
    """Rows of which some show a picture."""
    store = ImageStore(folder / "page_images")
    rows: list[Row] = []
    for number, shows in enumerate(shown):
        key = store.write(Image.new("RGB", (64, 96), (50 * number, 0, 0)))
        seen = [{"type": "text", "text": "Which rotor?"}, *([{"type": "image"}] if shows else [])]
        prompt = [{"role": "user", "content": seen}]
        reply = [{"role": "assistant", "content": [{"type": "text", "text": SEARCH}]}]
        rows.append({"prompt": prompt, "completion": reply, "images": [key] if shows else []})
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "validation.jsonl").write_text("")
    return store


def describe(folder: Path, model_dir: Path, store: ImageStore, **options: Any) -> TrainJob:
    defaults = {"epochs": 1, "batch_size": 1, "checkpoint_steps": 2, "dtype": "float32", "warmup_ratio": 0}
    return describe_job(FinetuneConfig.model_validate(defaults | options), model_dir, folder, store.root)


@pytest.mark.parametrize("parts", [("projector",), ("vision", "language")])
def test_the_parts_that_are_named_learn_and_no_others(parts: tuple[str, ...], vision_model: Path, tmp_path: Path) -> None:
    store = write_image_rows(tmp_path, True, True)
    job = describe(tmp_path, vision_model, store, parts=parts, learning_rate=1e-2)
    learn(job, tmp_path / "steps")
    model_dir = publish(job, tmp_path / "steps" / "2", tmp_path / "finetune")
    base, loaded = (AutoModelForImageTextToText.from_pretrained(folder) for folder in (vision_model, model_dir))
    assert list_changed_parts(base, loaded) == set(parts)
    assert AutoProcessor.from_pretrained(model_dir).image_token == AutoProcessor.from_pretrained(vision_model).image_token


def test_a_part_learns_at_its_own_rate(vision_model: Path, tmp_path: Path) -> None:
    store = write_image_rows(tmp_path, True)
    options = {"parts": ["projector", "vision", "language"], "learning_rate": 1e-2, "part_learning_rates": {"vision": 1e-4}}
    learn(describe(tmp_path, vision_model, store, **options), tmp_path / "steps")
    base, trained = (AutoModelForImageTextToText.from_pretrained(folder) for folder in (vision_model, tmp_path / "steps" / "1"))
    old, furthest = dict(base.named_parameters()), dict[str, float]()
    for name, weight in trained.named_parameters():
        part = find_part(name)
        furthest[part] = max(furthest.get(part, 0.0), (weight - old[name]).abs().max().item())
    # The first step of Adam goes as far as the rate says.
    assert furthest == pytest.approx({"projector": 1e-2, "vision": 1e-4, "language": 1e-2}, rel=0.01)


def test_rows_without_images_are_refused_where_nothing_would_reach_a_part(vision_model: Path, tmp_path: Path) -> None:
    store = write_image_rows(tmp_path, True, False)
    with pytest.raises(TrainError, match="1 of 2 rows show page images, and from others vision"):
        learn(describe(tmp_path, vision_model, store, parts=["vision"]), tmp_path / "steps")
    learn(describe(tmp_path, vision_model, store, parts=["vision", "language"]), tmp_path / "steps")
    write_image_rows(tmp_path, False)
    with pytest.raises(TrainError, match="0 of 1 rows show"):
        learn(describe(tmp_path, vision_model, store, parts=["vision", "language"]), tmp_path / "none")


def test_what_did_not_learn_or_should_not_have_is_not_published(text_model: Path, vision_model: Path) -> None:
    base, other = (AutoModelForImageTextToText.from_pretrained(vision_model) for _ in range(2))
    with pytest.raises(TrainError, match=r"changed nothing of the part language that the number format torch\.float32 shows"):
        check_trained(base, other, ("language",))
    with torch.no_grad():
        other.lm_head.weight[0, 0] += 1
    check_trained(base, other, ("language",))
    with pytest.raises(TrainError, match="the part language was frozen"):
        check_trained(base, other, ())
    with torch.no_grad():
        other.lm_head.weight[0, 0] = torch.nan
    with pytest.raises(NotFiniteError, match=r"lm_head\.weight|embed_tokens\.weight"):
        check_trained(base, other, ("language",))
    with pytest.raises(TrainError, match=r"finetune\.parts vision: the model has no such part\. It has: language\."):
        free_parts(AutoModelForCausalLM.from_pretrained(text_model), ("vision",))


def test_a_model_that_sees_by_weights_of_no_known_name_is_refused(vision_model: Path) -> None:
    model = AutoModelForImageTextToText.from_pretrained(vision_model)
    model.model.eyes = model.model.visual
    del model.model.visual
    with pytest.raises(
        TrainError, match=r"finetune\.parts: the model sees, .*: lm_head\.weight, model\.eyes, model\.language_model\."
    ):
        free_parts(model, ("language",))


def test_a_model_is_not_published_without_some_of_its_weights(text_model: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, text_model, {"method": "sft", "parts": ["language"]})
    shutil.copytree(text_model, tmp_path / "last")
    weights = load_file(tmp_path / "last" / "model.safetensors")
    missing = "model.layers.1.mlp.down_proj.weight"
    save_file({name: 2 * weight for name, weight in weights.items() if name != missing}, tmp_path / "last" / "model.safetensors")
    with pytest.raises(TrainError, match=rf"has no {missing}, one of 1 weights that are missing"):
        publish(job, tmp_path / "last", tmp_path / "finetune")
    assert not (tmp_path / "finetune" / "model").exists()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.visual.merger.linear_fc1.weight", "projector"),
        ("model.visual.deepstack_merger_list.0.norm.weight", "projector"),
        ("model.visual.blocks.0.attn.qkv.weight", "vision"),
        ("model.multi_modal_projector.linear_1.weight", "projector"),
        ("model.vision_tower.encoder.layers.0.weight", "vision"),
        ("model.connector.modality_projection.proj.weight", "projector"),
        ("model.vision_encoder.layers.0.weight", "vision"),
        ("model.mm_projector.linear_1.weight", "projector"),
        ("model.qformer.encoder.layer.0.attention.weight", "projector"),
        ("model.video_tower.encoder.layers.0.weight", "vision"),
        ("model.language_model.layers.0.self_attn.q_proj.weight", "language"),
        ("lm_head.weight", "language"),
    ],
)
def test_a_part_is_told_by_the_names_of_its_weights(name: str, part: str) -> None:
    assert find_part(name) == part


def test_the_language_model_alone_is_quantised(vision_model: Path) -> None:
    modules = AutoModelForImageTextToText.from_pretrained(vision_model).named_modules()
    linear = {name for name, module in modules if isinstance(module, torch.nn.Linear)}
    quantised = {name for name in linear if should_convert_module(name, _UNQUANTIZED)}
    assert {find_part(f"{name}.weight") for name in linear} == {"language", "vision", "projector"}
    assert quantised == {name for name in linear if name.startswith("model.language_model.layers.")}


def test_a_checkpoint_in_several_files_is_looked_at_in_all_of_them(text_model: Path, tmp_path: Path) -> None:
    """Published from such a one, the model is whole."""
    job = write_job(tmp_path, text_model, {"method": "sft", "parts": ["language"], "learning_rate": 1e-2})
    learn(job, tmp_path / "steps")
    whole, parted = tmp_path / "steps" / "4", tmp_path / "parted"
    AutoModelForCausalLM.from_pretrained(whole).save_pretrained(parted, max_shard_size="1MB")
    files = sorted(parted.glob("model-*.safetensors"))
    assert len(files) > 1
    model_dir = publish(job, parted, tmp_path / "finetune")
    assert load_file(model_dir / "model.safetensors").keys() == load_file(whole / "model.safetensors").keys()
    weights = load_file(files[-1])
    broken = next(iter(weights))
    weights[broken].view(-1)[0] = torch.inf
    save_file(weights, files[-1], metadata={"format": "pt"})
    with pytest.raises(NotFiniteError, match="is not finite"):
        publish(job, parted, tmp_path / "broken")
    assert not (tmp_path / "broken" / "model").exists()
