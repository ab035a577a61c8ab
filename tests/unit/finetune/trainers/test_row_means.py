"""A loss that is a mean over rows moves the model by the mean over the rows of a step, however the step is cut into batches."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from embedded_tokenizer import load_shared_tokenizer
from order_training import NO, NUM_QUESTIONS, YES, build_trainer, list_questions, train_in_process
from peft import LoraConfig, get_peft_model
from ports import find_port
from torch.nn.functional import logsigmoid
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification
from trl.trainer.sft_config import SFTConfig
from two_processes import run_in_two

from drag_ray.finetune.methods.dpo import DPO
from drag_ray.finetune.methods.method import AdapterMethod
from drag_ray.finetune.methods.reward import RewardModelling

pytestmark = pytest.mark.seconds

CUTS = [(8, 1), (1, 8), (3, 3)]
"""Rows of a batch and batches of a step; the last batch of (3, 3) has two."""


def compute_order_losses(model: Any) -> list[torch.Tensor]:
    """Of each question, page by page."""
    losses = []
    for question in list_questions():
        logits = [model(torch.tensor([page["input_ids"][:-1]])).logits[0, -1] for page in question["pages"]]
        odds = [score[YES] - score[NO] for score in logits]
        kinds = question["is_evidence"]
        others = [score for score, kind in zip(odds, kinds, strict=True) if not kind]
        of_evidence = [-torch.stack([score, *others]).log_softmax(0)[0] for score, kind in zip(odds, kinds, strict=True) if kind]
        losses.append(torch.stack(of_evidence).mean())
    return losses


@pytest.mark.parametrize(("batch_size", "accumulation"), CUTS)
def test_every_question_counts_alike_in_the_step_of_a_reranker_however_much_evidence_it_has(
    model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig], batch_size: int, accumulation: int
) -> None:
    loss = torch.stack(compute_order_losses(model)).mean()
    trainer = build_trainer(copy.deepcopy(model), build_descent(batch_size, accumulation, max_steps=1))
    check_step(trainer, model, loss)


def test_every_question_counts_alike_in_the_step_of_two_processes(model: LlamaForCausalLM, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "before")
    run_in_two(train_in_process, find_port(), tmp_path)
    loss = torch.stack(compute_order_losses(model)).mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    logged, after = torch.load(tmp_path / "after.pt")
    assert logged == pytest.approx(loss.item(), abs=1e-4)
    for (name, before), gradient in zip(model.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(after[name], (before - gradient).data, msg=name, rtol=1e-4, atol=1e-5)


def list_pairs() -> list[dict[str, Any]]:
    prompts = [[5 + place, 9, 10 + place] for place in range(NUM_QUESTIONS)]
    replies = {"chosen": [7, 12], "rejected": [8, 6, 12]}
    sides = [
        {name: {"input_ids": [*prompt, *reply], "labels": [-100] * 3 + reply} for name, reply in replies.items()}
        for prompt in prompts
    ]
    return [{"name": str(place), **pair, "image_keys": []} for place, pair in enumerate(sides)]


@pytest.mark.parametrize(("method", "cut"), [(DPO(), (1, 8)), (DPO(), (3, 3)), (RewardModelling(), (3, 3))])
def test_every_pair_counts_alike_in_a_step_that_ends_with_a_short_batch(
    method: AdapterMethod, model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig], cut: tuple[int, int]
) -> None:
    torch.manual_seed(1)
    base: Any = copy.deepcopy(model)
    if isinstance(method, RewardModelling):
        base = LlamaForSequenceClassification(LlamaConfig(**{**model.config.to_dict(), "num_labels": 1, "pad_token_id": 0}))
    start: Any = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj", "down_proj"], task_type=method.task))
    options = build_descent(*cut, max_steps=1).to_dict()
    shared = ("output_dir", "per_device_train_batch_size", "gradient_accumulation_steps", "optim", "max_grad_norm", "use_cpu")
    shared += ("bf16", "gradient_checkpointing", "max_length", "remove_unused_columns", "report_to", "disable_tqdm", "max_steps")
    shared += ("learning_rate", "logging_steps", "save_strategy")
    losses = [compute_pair_loss(method, start, pair) for pair in list_pairs()]
    trainer = method.build_trainer(
        {
            "model": copy.deepcopy(start),
            "args": method.build_arguments({name: options[name] for name in shared}),
            "train_dataset": Dataset.from_list(list_pairs()),
            "eval_dataset": None,
            "processing_class": load_shared_tokenizer(),
            "peft_config": None,
        },
        None,
    )
    check_step(trainer, start, torch.stack(losses).mean())


def compute_pair_loss(method: AdapterMethod, model: Any, pair: dict[str, Any]) -> torch.Tensor:
    """Of one pair; the policy of DPO is its own reference still."""

    def score(side: dict[str, list[int]]) -> torch.Tensor:
        logits = model(torch.tensor([side["input_ids"]])).logits[0]
        if isinstance(method, RewardModelling):
            return logits.squeeze()
        learned = [(place, token) for place, token in enumerate(side["labels"]) if token != -100]
        drawn = torch.stack([logits[place - 1].log_softmax(0)[token] for place, token in learned]).sum()
        return DPO().beta * (drawn - drawn.detach())

    return -logsigmoid(score(pair["chosen"]) - score(pair["rejected"]))


def check_step(trainer: Any, model: Any, loss: torch.Tensor) -> None:
    """Its loss is logged, and its gradient taken from the weights."""
    before = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    gradients = torch.autograd.grad(loss, list(before.values()))
    trainer.train()
    assert next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry) == pytest.approx(loss.item(), abs=1e-4)
    after = dict(trainer.model.named_parameters())
    for (name, weight), gradient in zip(before.items(), gradients, strict=True):
        torch.testing.assert_close(after[name].data, (weight - gradient).data, msg=name, rtol=1e-4, atol=1e-5)
    assert sum(gradient.any().item() for gradient in gradients) >= 4
