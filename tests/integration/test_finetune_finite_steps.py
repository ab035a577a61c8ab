"""A training that is not finite stops at the step: whole ones, of models with random weights, that break in different ways."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from drag_ray.engine.embedded import embedded_model_dir
from drag_ray.errors import NotFiniteError, TrainError
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.job import TrainJob
from drag_ray.finetune.methods.registry import METHOD_NAMES
from drag_ray.finetune.trainer import train

NUM_ROWS = 4
TOO_MUCH = 1e39
"""More than float32 can hold."""


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(embedded_model_dir()).save_pretrained(folder)
    return folder


def write_job(
    folder: Path, model_dir: Path, options: dict[str, Any], changed: dict[int, dict[str, Any]] | None = None
) -> TrainJob:
    """A training of four rows, one a step, some of them with other columns; the rows are those of `options["method"]`."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    rows = [
        build_row(options["method"], number, tokenizer) | {"trajectory_id": f"q{number}-0"} | (changed or {}).get(number, {})
        for number in range(NUM_ROWS)
    ]
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "validation.jsonl").write_text("")
    defaults = {"epochs": 1, "batch_size": 1, "checkpoint_steps": 1, "dtype": "float32", "device": "cpu", "warmup_ratio": 0}
    config = FinetuneConfig(**(defaults | options))
    return TrainJob(
        config,
        str(model_dir),
        train_path=path,
        validation_path=folder / "validation.jsonl",
        images_dir=None,
        use_gpu=False,
        num_workers=1,
        num_threads=1,
    )


def build_row(method: str, number: int, tokenizer: Any) -> dict[str, Any]:
    """A row of each method; of a question's two scored replies one comes after the other."""
    question = number // 2 if method == "reward" else number
    replies = [f"<search>{words}</search>" for words in ("thing", "somewhere else")]
    prompt = [{"role": "user", "content": f"Where is thing {question}?"}]
    if method == "dpo":
        chosen, rejected = ([{"role": "assistant", "content": reply}] for reply in replies)
        return {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    reply = replies[number % 2]
    row = {"prompt": prompt, "completion": [{"role": "assistant", "content": reply}]}
    of_method = {
        "sft": {},
        "kto": {"label": number % 2 == 0},
        "reward": {"score": 1.0 - number % 2},
        "grpo": {"advantage": 0.5 - number % 2, "completion_token_ids": tokenizer.encode(reply)},
    }
    return row | of_method[method]


def run(job: TrainJob) -> list[int]:
    """Train and return the steps of the checkpoints that were reported; an error has them too, as `steps`."""
    steps: list[int] = []
    try:
        train(job, lambda metrics, checkpoint_dir: steps.append(metrics["step"]), None)
    except TrainError as error:
        error.steps = steps  # type: ignore[attr-defined]
        raise
    return steps


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_weights_that_run_away_stop_the_training_at_the_next_step(method: str, model_dir: Path, tmp_path: Path) -> None:
    batch_size = 2 if method == "kto" else 1
    job = write_job(tmp_path, model_dir, {"method": method, "learning_rate": 1e30, "batch_size": batch_size})
    with pytest.raises(
        NotFiniteError, match=r"finetune step 2: loss \S+, gradient norm nan.*learning_rate .*1e\+30 now"
    ) as caught:
        run(job)
    assert caught.value.steps == [1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("method", "column"), [("sft", "weight"), ("grpo", "advantage")])
def test_a_broken_row_is_named(method: str, column: str, model_dir: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, model_dir, {"method": method}, changed={2: {column: TOO_MUCH}})
    with pytest.raises(NotFiniteError, match=r"Rows of the step, by their line in train\.jsonl: 3 \(q2-0\)\. ") as caught:
        run(job)
    steps = caught.value.steps  # type: ignore[attr-defined]
    assert f"finetune step {len(steps) + 1}:" in str(caught.value)


def test_the_first_step_is_not_laid_to_the_learning_rate(model_dir: Path, tmp_path: Path) -> None:
    changed = {number: {"weight": TOO_MUCH} for number in range(NUM_ROWS)}
    job = write_job(tmp_path, model_dir, {"method": "sft"}, changed)
    with pytest.raises(NotFiniteError, match=r"finetune step 1: .*one of these rows is broken, or the base model"):
        run(job)


@pytest.mark.parametrize("method", ["sft", "reward"])
def test_a_training_that_changes_nothing_is_refused(method: str, model_dir: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, model_dir, {"method": method, "learning_rate": 1e-12})
    with pytest.raises(TrainError, match=r"training has changed nothing.*training row 1 \(q0-0\).*learning_rate 1e-12"):
        run(job)
