"""The loss of reinforcement learning, beside values worked out by hand and the gradient that theory gives for the first step."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from torch.testing import assert_close
from transformers import AutoTokenizer, LlamaForCausalLM
from trl.trainer.sft_config import SFTConfig

from drag_ray.engine.embedded import embedded_model_dir
from drag_ray.finetune.collator import RowCollator
from drag_ray.finetune.policy_gradient import PolicyGradientTrainer, compute_gains, compute_kl, is_clipped

STEPS = [
    {"input_ids": [5, 6, 7, 8, 9], "labels": [-100, -100, 7, 8, 9], "advantage": 1.5},
    {"input_ids": [9, 8, 7], "labels": [-100, 8, -100], "advantage": -0.5},
    {"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, 4], "advantage": -1.0},
    {"input_ids": [4, 4, 4, 2], "labels": [-100, -100, -100, 2], "advantage": 0.7},
]
LORA = LoraConfig(r=2, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "clipped"),
    [
        (1.0, 2.0, 2.0, False),
        (1.5, 2.0, 2.4, True),  # likelier by more than a fifth: no more to be had
        (1.5, -2.0, -3.0, False),  # likelier, and it should not be: the whole loss
        (0.5, -2.0, -1.6, True),
        (0.5, 2.0, 1.0, False),
    ],
)
def test_a_ratio_counts_up_to_the_clip_range(ratio: float, advantage: float, gain: float, clipped: bool) -> None:
    before = torch.tensor([[-1.0]])
    now = (before + torch.tensor(ratio).log()).requires_grad_()
    gains = compute_gains(now, before, torch.tensor([[advantage]]), clip_range=0.2)
    assert_close(gains, torch.tensor([[gain]]))
    assert is_clipped(now, before, torch.tensor([[advantage]]), clip_range=0.2).item() == clipped
    assert (torch.autograd.grad(gains.sum(), now)[0].item() == 0) == clipped


def test_the_divergence_is_nothing_between_equals_and_its_mean_is_that_of_the_distributions() -> None:
    now, before = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.4, 0.4, 0.2])
    assert_close(compute_kl(now.log(), now.log()), torch.zeros(3))
    estimate = (now * compute_kl(now.log(), before.log())).sum()  # expected over what the policy of now draws
    assert_close(estimate, (now * (now / before).log()).sum())


def build_trainer(model: Any, arguments: SFTConfig) -> Any:
    return PolicyGradientTrainer(
        model=model,
        args=arguments,
        data_collator=RowCollator(pad_token_id=0, number="advantage"),
        train_dataset=Dataset.from_list([{"name": str(number), **step} for number, step in enumerate(STEPS)]),
        processing_class=AutoTokenizer.from_pretrained(embedded_model_dir()),
        clip_range=0.2,
        kl_weight=0.1,
    )


@pytest.mark.parametrize(("batch_size", "accumulation"), [(4, 1), (2, 2), (1, 4)])
def test_the_first_step_follows_the_policy_gradient_however_it_is_cut_into_batches(
    model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig], batch_size: int, accumulation: int
) -> None:
    expected: Any = get_peft_model(copy.deepcopy(model), LORA)
    total = torch.zeros(())
    for step in STEPS:
        logits = expected(torch.tensor([step["input_ids"]])).logits[0, :-1].log_softmax(dim=-1)
        drawn = [(place, label) for place, label in enumerate(step["labels"][1:]) if label != -100]
        total = total - step["advantage"] * sum(logits[place, label] for place, label in drawn)
    (total / 8).backward()  # the steps drew 8 tokens
    trained: Any = get_peft_model(copy.deepcopy(model), LORA)
    trained.load_state_dict(expected.state_dict())
    build_trainer(trained, build_descent(batch_size, accumulation, max_steps=1)).train()
    moved = 0
    for (name, before), after in zip(expected.named_parameters(), trained.parameters(), strict=True):
        gradient = torch.zeros_like(before) if before.grad is None else before.grad
        assert_close(after.data, before.data - gradient, msg=name, rtol=1e-4, atol=1e-6)
        moved += gradient.any().item()
    assert moved == 4  # the second matrices of an adapter; the first ones start moving once these are not zero


def test_the_log_says_how_far_the_policy_has_come(model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig]) -> None:
    trainer = build_trainer(get_peft_model(copy.deepcopy(model), LORA), build_descent(4, 1, max_steps=3))
    trainer.train()
    points = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert points[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert 0 < points[1]["kl"] < points[2]["kl"]
    assert points[0]["clipped"] == 0
    mean = sum(step["advantage"] * sum(label != -100 for label in step["labels"]) for step in STEPS) / 8
    assert points[0]["loss"] == pytest.approx(-mean, abs=1e-4)
