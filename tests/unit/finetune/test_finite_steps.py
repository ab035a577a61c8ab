"""A training that is not finite stops at the step: real ones, of models with random weights, that break in different ways."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, TrainerCallback
from trl.trainer.sft_config import SFTConfig

from drag_ray.engine.embedded import embedded_model_dir
from drag_ray.errors import NotFiniteError, TrainError
from drag_ray.finetune.collator import RowCollator
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.finite_steps import FiniteSteps
from drag_ray.finetune.job import TrainJob
from drag_ray.finetune.trained_tokens import SupervisedTrainer, TrainedTokensTrainer
from drag_ray.finetune.trainer import train

FORMATS = ("sft_query", "dpo", "kto", "reward", "rl_steps")
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
    """A training of four rows, one a step, some of them with other columns; the rows are those of `options["format"]`."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    rows = [
        build_row(options["format"], number, tokenizer) | {"trajectory_id": f"q{number}-0"} | (changed or {}).get(number, {})
        for number in range(NUM_ROWS)
    ]
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "validation.jsonl").write_text("")
    defaults = {"epochs": 1, "batch_size": 1, "checkpoint_steps": 1, "dtype": "float32", "device": "cpu", "warmup_ratio": 0}
    config = FinetuneConfig(**(defaults | options))
    paths = {"train_path": str(path), "validation_path": str(folder / "validation.jsonl"), "images_dir": ""}
    return TrainJob(config, str(model_dir), **paths, use_gpu=False, num_workers=1, num_threads=1)


def build_row(kind: str, number: int, tokenizer: Any) -> dict[str, Any]:
    """A row of each format; of a question's two scored replies one comes after the other."""
    question = number // 2 if kind == "reward" else number
    replies = [f"<search>{words}</search>" for words in ("thing", "somewhere else")]
    prompt = [{"role": "user", "content": f"Where is thing {question}?"}]
    if kind == "dpo":
        chosen, rejected = ([{"role": "assistant", "content": reply}] for reply in replies)
        return {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    reply = replies[number % 2]
    row = {"prompt": prompt, "completion": [{"role": "assistant", "content": reply}]}
    of_kind = {
        "sft_query": {},
        "kto": {"label": number % 2 == 0},
        "reward": {"score": 1.0 - number % 2},
        "rl_steps": {"advantage": 0.5 - number % 2, "completion_token_ids": tokenizer.encode(reply)},
    }
    return row | of_kind[kind]


def run(job: TrainJob) -> list[int]:
    """Train and return the steps of the checkpoints that were reported; an error has them too, as `steps`."""
    steps: list[int] = []
    try:
        train(job, lambda metrics, checkpoint_dir: steps.append(metrics["step"]), None)
    except TrainError as error:
        error.steps = steps  # type: ignore[attr-defined]
        raise
    return steps


@pytest.mark.parametrize("kind", FORMATS)
def test_weights_that_run_away_stop_the_training_at_the_next_step(kind: str, model_dir: Path, tmp_path: Path) -> None:
    batch_size = 2 if kind == "kto" else 1
    job = write_job(tmp_path, model_dir, {"format": kind, "learning_rate": 1e30, "batch_size": batch_size})
    with pytest.raises(
        NotFiniteError, match=r"finetune step 2: loss \S+, gradient norm nan.*learning_rate .*1e\+30 now"
    ) as caught:
        run(job)
    assert caught.value.steps == [1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "column"), [("sft_query", "weight"), ("rl_steps", "advantage")])
def test_a_broken_row_is_named(kind: str, column: str, model_dir: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, model_dir, {"format": kind}, changed={2: {column: TOO_MUCH}})
    with pytest.raises(NotFiniteError, match=r"Rows of the step, by their line in train\.jsonl: 3 \(q2-0\)\. ") as caught:
        run(job)
    steps = caught.value.steps  # type: ignore[attr-defined]
    assert f"finetune step {len(steps) + 1}:" in str(caught.value)


def test_the_first_step_is_not_laid_to_the_learning_rate(model_dir: Path, tmp_path: Path) -> None:
    changed = {number: {"weight": TOO_MUCH} for number in range(NUM_ROWS)}
    job = write_job(tmp_path, model_dir, {"format": "sft_query"}, changed)
    with pytest.raises(NotFiniteError, match=r"finetune step 1: .*one of these rows is broken, or the base model"):
        run(job)


@pytest.mark.parametrize("kind", ["sft_query", "reward"])
def test_a_training_that_changes_nothing_is_refused(kind: str, model_dir: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, model_dir, {"format": kind, "learning_rate": 1e-12})
    with pytest.raises(TrainError, match=r"training has changed nothing.*training row 1 \(q0-0\).*learning_rate 1e-12"):
        run(job)


@pytest.mark.parametrize("rate", [float("inf"), float("nan")])
def test_a_learning_rate_that_is_not_finite_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"learning_rate"):
        FinetuneConfig(learning_rate=rate)


ROWS = [
    {"name": str(number), "input_ids": [5, 6, 7, 8, number], "labels": [-100, -100, 7, 8, number], "weight": 1.0}
    for number in range(8)
]


def build_trainer(
    trainer_class: type[FiniteSteps], model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig], **options: Any
) -> Any:
    """A trainer of a LoRA adapter on the small model."""
    torch.manual_seed(0)
    fresh = type(model)(model.config)
    number = "weight" if trainer_class is TrainedTokensTrainer else None
    return trainer_class(
        model=get_peft_model(fresh, LoraConfig(r=2, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")),
        args=build_descent(batch_size=2, accumulation=2, max_steps=2, **options),
        data_collator=RowCollator(pad_token_id=0, number=number),
        train_dataset=Dataset.from_list(ROWS),
        processing_class=AutoTokenizer.from_pretrained(embedded_model_dir()),
    )


def copy_weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


@pytest.mark.parametrize("trainer_class", [SupervisedTrainer, TrainedTokensTrainer])
def test_nothing_is_learned_from_a_gradient_that_is_not_finite(
    trainer_class: type[FiniteSteps], model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig]
) -> None:
    trainer = build_trainer(trainer_class, model, build_descent)
    before = copy_weights(trainer)
    broken = next(weight for name, weight in trainer.model.named_parameters() if "lora_B" in name)
    broken.register_hook(lambda gradient: torch.full_like(gradient, torch.nan))  # what cuDNN's attention did to q_proj
    with pytest.raises(NotFiniteError, match=r"finetune step 1: loss \d\.\d+, gradient norm nan") as caught:
        trainer.train()
    assert str(caught.value).count(", ") >= 4  # the four rows of both batches
    torch.testing.assert_close(copy_weights(trainer), before, rtol=0, atol=0)


class _BreakWeights(TrainerCallback):
    """Stands for a step that overflows: what it leaves is not finite, though its gradient was."""

    def on_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        next(weight for name, weight in model.named_parameters() if "lora_A" in name).data[0, 0] = torch.inf

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        pytest.fail("a broken checkpoint was reported")


def test_a_checkpoint_whose_weights_are_not_finite_is_not_reported(
    model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig]
) -> None:
    trainer = build_trainer(SupervisedTrainer, model, build_descent, save_strategy="steps", save_steps=1)
    trainer.add_callback(_BreakWeights())
    with pytest.raises(NotFiniteError, match=r"finetune step 1: its gradient was finite, and .*lora_A.* no longer is"):
        trainer.train()
