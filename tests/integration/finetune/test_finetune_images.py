"""Training on rows with page images: a Qwen3-VL of two layers learns which query belongs to which picture."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from embedded_tokenizer import write_tokenizer
from peft import PeftModel
from PIL import Image
from qwen3_vl_shapes import SHAPES_TINY, write_model
from safetensors import safe_open
from training_cases import describe_job
from transformers import AutoConfig, Qwen3VLForConditionalGeneration
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.engine.models.adapter import ADAPTER_WEIGHTS_NAME, read_base_model, write_base_model
from drag_ray.engine.models.pretrained import load_model, load_reward_model, load_tokenizer
from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.methods.dpo import DPO
from drag_ray.finetune.methods.reward import RewardModelling
from drag_ray.finetune.methods.sft import SFT
from drag_ray.finetune.outputs.publication import merge_adapter, publish_adapter
from drag_ray.finetune.rows.images import open_training_images
from drag_ray.finetune.rows.tokenized_rows import RowTokenizer
from drag_ray.finetune.rows.training_rows import tokenize_training_rows
from drag_ray.finetune.trainer import train
from drag_ray.finetune.trainers.collator import PairCollator, RowCollator
from drag_ray.finetune.trainers.trained_tokens import compute_trained_loss, list_features
from drag_ray.finetune.training_folder import Description

QUERIES = ("rotor", "spar", "fuel", "cabin")
EPOCHS = 40


def say(role: str, *parts: str | None) -> dict[str, Any]:
    """A message of a written row; None stands for an image."""
    return {"role": role, "content": [{"type": "text" if part else "image", "text": part} for part in parts]}


def build_rows(images: list[str]) -> list[dict[str, Any]]:
    """Rows that differ in nothing but their picture and the query to learn."""
    prompt = [
        say("user", "Question: what is shown?"),
        say("assistant", "<search>page</search>"),
        say("user", "Pages found:", None),
    ]
    return [
        {"prompt": prompt, "completion": [say("assistant", f"<search>{query}</search>")], "images": [image]}
        for query, image in zip(QUERIES, images, strict=True)
    ]


def write_rows(run_dir: Path, kind: str, rows: list[dict[str, Any]]) -> None:
    """The same rows for training and for validation."""
    folder = run_dir / "format" / kind
    folder.mkdir(parents=True)
    for side in ("train", "validation"):
        (folder / f"{side}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_rows(run_dir: Path) -> list[dict[str, Any]]:
    lines = (run_dir / "format" / "sft_context" / "train.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_model(folder, write_tokenizer(folder), SHAPES_TINY, max_pixels=256 * 256)
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(folder)
    config.text_config.initializer_range = config.vision_config.initializer_range = 0.2  # so that images make a difference
    model: Any = Qwen3VLForConditionalGeneration(config)
    model.lm_head.weight.data.mul_(4)  # so narrow a model could not be sure of a word otherwise
    model.float().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with four page images and a row for each."""
    folder = tmp_path_factory.mktemp("run")
    store = ImageStore(folder / "index" / DIR_NAME)
    colours = np.random.default_rng(0).integers(0, 256, (len(QUERIES), 8, 10, 3), dtype=np.uint8)
    images = [store.write(Image.fromarray(blocks).resize((320, 256), Image.Resampling.NEAREST)) for blocks in colours]
    write_rows(folder, "sft_context", build_rows(images))
    return folder


def configure(**options: Any) -> FinetuneConfig:
    defaults = {
        "epochs": EPOCHS,
        "learning_rate": 0.003,
        "warmup_ratio": 0,
        "lora_dropout": 0,
        "dtype": "float32",
        "device": "cpu",
    }
    return FinetuneConfig.model_validate({"sft": SFT(rows="sft_context"), "checkpoint_steps": EPOCHS} | defaults | options)


@pytest.fixture(scope="module")
def trained(run_dir: Path, model_dir: Path) -> dict[str, Any]:
    """The outcome of a training whose adapter is published as the stage does it."""
    job = build_job(run_dir, model_dir, configure())
    outcome = train(job, tokenize_training_rows(job), lambda _, checkpoint: shutil.copytree(checkpoint, run_dir / "last"), None)
    (run_dir / "finetune").mkdir()
    described = Description(job.config, outcome["counts"], {}, None)
    publish_adapter(run_dir / "last", str(model_dir), described, None, run_dir / "finetune")
    return outcome


def test_the_loss_falls_below_what_the_text_alone_allows(trained: dict[str, Any]) -> None:
    counts, losses = trained["counts"], [point["loss"] for point in trained["curve"] if "loss" in point]
    assert (counts["rows"], counts["images"], len(losses)) == (4, 4, EPOCHS)
    assert losses[0] > 5
    blind_loss = len(QUERIES) * math.log(len(QUERIES)) / counts["trained_tokens"]  # of who has to guess which query it is
    assert trained["curve"][-1]["eval_loss"] < blind_loss / 3


def compute_loss(model: Any, batch: dict[str, torch.Tensor]) -> float:
    with torch.no_grad():
        return float(compute_trained_loss(model, batch))


def test_the_adapter_loads_with_its_base_and_sees_the_images(trained: dict[str, Any], run_dir: Path, model_dir: Path) -> None:
    images = open_training_images(str(model_dir), [run_dir / "index" / DIR_NAME])
    tokenizer = load_tokenizer(model_dir)
    rows = SFT().tokenize(read_rows(run_dir), RowTokenizer(tokenizer, 2048, images)).rows
    learned = [tokenizer.decode([label for label in row["labels"] if label != IGNORED_LABEL]) for row in rows]
    assert learned == [f"<search>{query}</search><|im_end|>" for query in QUERIES]

    collate = RowCollator(tokenizer.pad_token_id, images)
    keys = [row["image_keys"] for row in rows]
    batch = collate(rows)
    swapped = collate([{**row, "image_keys": other} for row, other in zip(rows, keys[1:] + keys[:1], strict=True)])
    adapted = PeftModel.from_pretrained(load_model(model_dir, "float32"), str(run_dir / "finetune" / "adapter")).eval()
    merged = load_model(run_dir / "finetune" / "merged", "float32").eval()
    for model in (adapted, merged):
        assert compute_loss(model, batch) == pytest.approx(trained["curve"][-1]["eval_loss"], abs=1e-3)
        assert compute_loss(model, swapped) > 1
    with safe_open(run_dir / "finetune" / "adapter" / ADAPTER_WEIGHTS_NAME, "pt") as weights:
        names = list(weights.keys())
    assert names
    assert not any("visual" in name for name in names)


def test_trls_own_loss_which_gpus_take_is_the_same(run_dir: Path, model_dir: Path, tmp_path: Path) -> None:
    images = open_training_images(str(model_dir), [run_dir / "index" / DIR_NAME])
    tokenizer = load_tokenizer(model_dir)
    rows = SFT().tokenize(read_rows(run_dir), RowTokenizer(tokenizer, 2048, images)).rows
    collate = RowCollator(tokenizer.pad_token_id, images)
    arguments = SFTConfig(
        str(tmp_path),
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        report_to="none",
    )
    trainer: Any = SFTTrainer(
        load_model(model_dir, "float32"),
        arguments,
        data_collator=collate,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    with torch.no_grad():
        theirs = float(trainer.compute_loss(trainer.model, collate(rows)))
    assert theirs == pytest.approx(compute_loss(load_model(model_dir, "float32").eval(), collate(rows)), rel=1e-4)


def build_job(run_dir: Path, model_dir: Path, config: FinetuneConfig) -> TrainJob:
    rows_dir = run_dir / "format" / config.chosen_method.row_format
    return describe_job(config, model_dir, rows_dir, run_dir / "index" / DIR_NAME)


def train_twice(run_dir: Path, model_dir: Path, **options: Any) -> list[float]:
    """The losses of two steps, without Ray in one process."""
    job = build_job(run_dir, model_dir, configure(epochs=2, **options))
    curve = train(job, tokenize_training_rows(job), lambda metrics, checkpoint_dir: None, None)["curve"]
    return [point["loss"] for point in curve if "loss" in point]


@pytest.fixture(scope="module")
def plain_losses(run_dir: Path, model_dir: Path) -> list[float]:
    return train_twice(run_dir, model_dir)


@pytest.mark.parametrize("options", [{"gradient_checkpointing": True}, {"batch_size": 1, "gradient_accumulation": 4}])
def test_how_it_trains_does_not_change_what_is_learned(
    run_dir: Path, model_dir: Path, plain_losses: list[float], options: dict[str, Any]
) -> None:
    assert len(plain_losses) == 2
    assert plain_losses[0] - plain_losses[1] > 0.1
    assert train_twice(run_dir, model_dir, **options) == pytest.approx(plain_losses, rel=1e-3)


@pytest.mark.slow
def test_preferences_that_only_the_images_tell_apart_are_learned(run_dir: Path, model_dir: Path) -> None:
    """Each query is chosen for one picture and rejected for another: who is blind cannot get below ln 2."""
    rows = read_rows(run_dir)
    pairs = [
        {"prompt": row["prompt"], "chosen": row["completion"], "rejected": other["completion"], "images": row["images"]}
        for row, other in zip(rows, rows[1:] + rows[:1], strict=True)
    ]
    write_rows(run_dir, "dpo", pairs)
    config = configure(method="dpo", dpo=DPO(beta=0.3), epochs=10, learning_rate=0.01)
    job = build_job(run_dir, model_dir, config)
    outcome = train(job, tokenize_training_rows(job), lambda metrics, checkpoint_dir: None, None)
    assert outcome["counts"]["images"] == len(pairs)
    last = outcome["curve"][-1]
    assert last["eval_pair_accuracy"] == 1
    assert last["eval_loss"] < math.log(2) / 3


def test_a_reward_model_learns_what_only_the_images_tell_apart(run_dir: Path, model_dir: Path, tmp_path: Path) -> None:
    """Of two queries each is the better one for its own picture: who is blind cannot get below ln 2."""
    first, second = read_rows(run_dir)[:2]
    scored = [
        {**shown, "completion": written["completion"], "score": float(shown is written)}
        for shown in (first, second)
        for written in (first, second)
    ]
    write_rows(run_dir, "reward", scored)
    job = build_job(run_dir, model_dir, configure(method="reward", epochs=20, learning_rate=0.01, checkpoint_steps=20))
    outcome = train(
        job, tokenize_training_rows(job), lambda metrics, checkpoint: shutil.copytree(checkpoint, tmp_path / "adapter"), None
    )
    assert outcome["counts"]["rows"] == outcome["counts"]["images"] == 2
    last = outcome["curve"][-1]
    assert last["eval_pair_accuracy"] == 1
    assert last["eval_loss"] < math.log(2) / 3

    write_base_model(tmp_path / "adapter", read_base_model(str(model_dir)))
    merge_adapter(model_dir, tmp_path / "adapter", tmp_path / "merged", "float32")
    model = load_reward_model(tmp_path / "merged", "float32").eval()
    images = open_training_images(str(model_dir), [run_dir / "index" / DIR_NAME])
    tokenizer = load_tokenizer(model_dir)
    pairs = RewardModelling().tokenize(scored, RowTokenizer(tokenizer, 2048, images)).rows
    collate = PairCollator(tokenizer.pad_token_id, images)
    with torch.no_grad():
        chosen, rejected = model(**list_features(collate(pairs))).logits.view(2, -1)
    loss = -torch.nn.functional.logsigmoid(chosen - rejected).mean().item()
    assert loss == pytest.approx(last["eval_loss"], abs=1e-3)
