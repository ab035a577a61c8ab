"""Training that goes on from the adapter that collected, with every method, and training that is not finite, which stops at the
step: on a model of two layers with random weights."""

import itertools
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from training_cases import ADAPTER_METHODS, NUM_ROWS, write_job, write_model
from transformers import AutoTokenizer, Trainer

from drag_ray.engine.models.adapter_weights import _read_weights
from drag_ray.engine.models.model_files import ADAPTER_WEIGHTS_NAME
from drag_ray.engine.models.pretrained import load_model
from drag_ray.errors import NotFiniteError, TrainError
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.rows.training_rows import tokenize_training_rows
from drag_ray.finetune.trainer import train

LEARNING_RATE = 1e-3
BETA = 0.1


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def start_dir(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes much of what the model says."""
    folder = tmp_path_factory.mktemp("start")
    config = FinetuneConfig()
    shape = {"r": config.lora_r, "lora_alpha": config.lora_alpha, "target_modules": list(config.target_modules)}
    torch.manual_seed(1)
    adapted: Any = get_peft_model(load_model(model_dir, "float32"), LoraConfig(**shape, task_type="CAUSAL_LM"))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            weight.data.normal_()
    adapted.save_pretrained(folder)
    return folder


def train_twice(folder: Path, model_dir: Path, start_dir: Path | None, resume_from: Path | None = None, **options: Any) -> Any:
    """Two steps over all rows, which are those for validation too; the checkpoint of each is kept in `folder`."""
    defaults = {"epochs": 2, "batch_size": NUM_ROWS, "learning_rate": LEARNING_RATE, "warmup_ratio": 0.03}
    folder.mkdir(exist_ok=True)
    job = write_job(folder, model_dir, defaults | options, start_dir=start_dir)
    shutil.copy(job.train_path, job.validation_path)

    def report(metrics: dict[str, Any], checkpoint_dir: Path) -> None:
        assert not (checkpoint_dir / "ref").exists()
        shutil.copytree(checkpoint_dir, folder / f"step-{metrics['step']}")

    return train(job, tokenize_training_rows(job), report, resume_from)["curve"]


def score(model: Any, tokenizer: Any, number: int, reply: str) -> torch.Tensor:
    """Log-probabilities of the tokens of a reply to the prompt of a row, and of the one that ends the turn."""
    prompt = [{"role": "user", "content": f"Where is thing {number}?"}]
    prompt_ids = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
    reply_ids = tokenizer.encode(f"<search>{reply}</search><|im_end|>")
    with torch.no_grad():
        scores = model(torch.tensor([prompt_ids + reply_ids])).logits[0, len(prompt_ids) - 1 : -1].log_softmax(-1)
    return scores.gather(1, torch.tensor(reply_ids)[:, None])[:, 0]


def load_adapted(model_dir: Path, adapter_dir: Path) -> Any:
    """The base model with this adapter and no other."""
    return PeftModel.from_pretrained(load_model(model_dir, "float32"), str(adapter_dir)).eval()


def compute_sft_loss(model: Any, tokenizer: Any) -> float:
    replies = ["thing", "somewhere else"]
    return -torch.cat([score(model, tokenizer, number, replies[number % 2]) for number in range(NUM_ROWS)]).mean().item()


def compute_dpo_loss(model: Any, reference: Any, tokenizer: Any) -> float:
    """Equation 7 of the DPO paper."""

    def compute_gain(number: int, reply: str) -> torch.Tensor:
        return score(model, tokenizer, number, reply).sum() - score(reference, tokenizer, number, reply).sum()

    margins = [compute_gain(number, "thing") - compute_gain(number, "somewhere else") for number in range(NUM_ROWS)]
    return -torch.nn.functional.logsigmoid(BETA * torch.stack(margins)).mean().item()


def test_supervised_training_begins_with_the_loss_of_the_adapter_and_its_own_stands_alone_on_the_base_model(
    model_dir: Path, start_dir: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    curve = train_twice(tmp_path, model_dir, start_dir, method="sft", lora_dropout=0)
    start = compute_sft_loss(load_adapted(model_dir, start_dir), tokenizer)
    assert abs(start - compute_sft_loss(load_model(model_dir, "float32"), tokenizer)) > 1e-3
    assert [curve[0]["eval_loss"], curve[1]["loss"]] == pytest.approx([start, start], abs=1e-4)
    trained = compute_sft_loss(load_adapted(model_dir, tmp_path / "step-2"), tokenizer)
    assert curve[-1]["eval_loss"] == pytest.approx(trained, abs=1e-4)
    assert trained < start - 0.001


def test_the_reference_of_preferences_is_the_adapter_as_it_was_also_after_a_restart(
    model_dir: Path, start_dir: Path, tmp_path: Path
) -> None:
    curve = train_twice(tmp_path / "whole", model_dir, start_dir, method="dpo")
    assert curve[0]["eval_loss"] == pytest.approx(math.log(2), abs=1e-5)  # the policy is still its own reference
    policy, reference = (load_adapted(model_dir, folder) for folder in (tmp_path / "whole" / "step-2", start_dir))
    expected = compute_dpo_loss(policy, reference, AutoTokenizer.from_pretrained(model_dir))
    assert curve[-1]["eval_loss"] == pytest.approx(expected, rel=1e-5)
    assert expected < math.log(2) - 1e-3
    assert curve[-1]["eval_pair_accuracy"] == 1
    resumed = train_twice(tmp_path / "resumed", model_dir, start_dir, tmp_path / "whole" / "step-1", method="dpo")
    assert resumed[-1]["eval_loss"] == pytest.approx(curve[-1]["eval_loss"], abs=1e-6)


FIRST_LOSSES = {
    "dpo": math.log(2),
    "grpo": -(7 * 0.5 - 10 * 0.5) / (7 + 10),  # replies of 7 and 10 tokens, with advantages of 0.5 and -0.5
}
"""Of a policy that is its own reference."""


@pytest.mark.parametrize("method", ADAPTER_METHODS)
def test_every_method_trains_the_weights_of_the_adapter_from_the_first_step_on(
    method: str, model_dir: Path, start_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainers: list[Any] = []
    inner_train = Trainer.train
    monkeypatch.setattr(Trainer, "train", lambda self, **options: trainers.append(self) or inner_train(self, **options))
    curve = train_twice(tmp_path, model_dir, start_dir, method=method)
    steps = [point for point in curve if "loss" in point]
    assert [step["learning_rate"] for step in steps] == [LEARNING_RATE, LEARNING_RATE / 2]
    if method in FIRST_LOSSES:
        assert steps[0]["loss"] == pytest.approx(FIRST_LOSSES[method], abs=1e-5)
    dropouts = {module.p for module in trainers[0].model.modules() if isinstance(module, torch.nn.Dropout)}
    assert dropouts == ({0.05} if method == "sft" else set())

    folders = (start_dir, tmp_path / "step-1", tmp_path / "step-2")
    weights = [
        {name: weight for name, weight in _read_weights(folder / ADAPTER_WEIGHTS_NAME) if ".lora_" in name} for folder in folders
    ]
    assert weights[0].keys() == weights[1].keys() == weights[2].keys()
    for before, after in itertools.pairwise(weights):
        moved = max((after[name] - before[name]).abs().max().item() for name in before)
        assert 0 < moved < 2 * LEARNING_RATE  # AdamW moves a weight by its learning rate, about


TOO_MUCH = 1e39
"""More than float32 can hold."""


def run(job: TrainJob) -> list[int]:
    """Train and return the steps of the checkpoints that were reported; an error has them too, as `steps`."""
    steps: list[int] = []
    try:
        train(job, tokenize_training_rows(job), lambda metrics, checkpoint_dir: steps.append(metrics["step"]), None)
    except TrainError as error:
        error.steps = steps  # type: ignore[attr-defined]
        raise
    return steps


@pytest.mark.parametrize("method", ADAPTER_METHODS)
def test_weights_that_run_away_stop_the_training_at_the_next_step(method: str, model_dir: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, model_dir, {"method": method, "learning_rate": 1e30})
    with pytest.raises(
        NotFiniteError, match=r"finetune step 2: loss \S+, gradient norm nan.*learning_rate .*1e\+30 now"
    ) as caught:
        run(job)
    assert caught.value.steps == [1]  # type: ignore[attr-defined]


def test_a_broken_row_is_named(model_dir: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, model_dir, {"method": "grpo"}, changed={2: {"advantage": TOO_MUCH}})
    with pytest.raises(NotFiniteError, match=r"Rows of the step, by their line in train\.jsonl: 3 \(q2-0\)\. ") as caught:
        run(job)
    steps = caught.value.steps  # type: ignore[attr-defined]
    assert f"finetune step {len(steps) + 1}:" in str(caught.value)


def test_the_first_step_is_not_laid_to_the_learning_rate(model_dir: Path, tmp_path: Path) -> None:
    changed = {number: {"advantage": TOO_MUCH} for number in range(NUM_ROWS)}
    job = write_job(tmp_path, model_dir, {"method": "grpo"}, changed)
    with pytest.raises(NotFiniteError, match=r"finetune step 1: .*one of these rows is broken, or the base model"):
        run(job)


@pytest.mark.parametrize("method", ["sft", "reward"])
def test_a_training_that_changes_nothing_is_refused(method: str, model_dir: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, model_dir, {"method": method, "learning_rate": 1e-12})
    with pytest.raises(TrainError, match=r"training has changed nothing.*training row 1 \(q0-0\).*learning_rate 1e-12"):
        run(job)
