"""The loss of reinforcement learning, beside values worked out by hand and the gradient that theory gives for the first step."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from datasets import Dataset
from embedded_tokenizer import load_shared_tokenizer
from peft import LoraConfig, get_peft_model
from torch.testing import assert_close
from transformers import LlamaForCausalLM, TrainerCallback
from trl.trainer.sft_config import SFTConfig

from drag_ray.finetune.losses import LossOptions
from drag_ray.finetune.methods.grpo import StepCollator
from drag_ray.finetune.trainers.policy_gradient import DrawnScores, PolicyGradientTrainer

pytestmark = pytest.mark.seconds

STEPS = [
    {"input_ids": [5, 6, 7, 8, 9], "labels": [-100, -100, 7, 8, 9], "advantage": 1.5},
    {"input_ids": [9, 8, 7], "labels": [-100, 8, -100], "advantage": -0.5},
    {"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, 4], "advantage": -1.0},
    {"input_ids": [4, 4, 4, 2], "labels": [-100, -100, -100, 2], "advantage": 0.7},
]
LORA = LoraConfig(r=2, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")


def build_trainer(
    model: Any,
    arguments: SFTConfig,
    *,
    temperature: float = 1.0,
    engine: list[list[float]] | None = None,
    loss: str = "grpo",
    aggregation: Any = "token",
) -> Any:
    """A trainer of STEPS; `engine` has the log-probabilities of the drawn tokens of each."""
    steps = [
        {"name": str(number), **step, "engine_log_probabilities": engine[number] if engine else []}
        for number, step in enumerate(STEPS)
    ]
    return PolicyGradientTrainer(
        model=model,
        args=arguments,
        data_collator=StepCollator(pad_token_id=0),
        train_dataset=Dataset.from_list(steps),
        processing_class=load_shared_tokenizer(),
        loss=loss,
        loss_options=LossOptions(clip_range=0.2, clip_high=0.2, max_engine_ratio=3.0, beta=0.5),
        kl_weight=0.1,
        aggregation=aggregation,
        temperature=temperature,
        knows_engine=engine is not None,
    )


def score_drawn(model: Any, step: dict[str, Any], temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities of the drawn tokens of a step, one by one, as transformers has them."""
    scores = (model(torch.tensor([step["input_ids"]])).logits[0, :-1] / temperature).log_softmax(dim=-1)
    return torch.stack([scores[place, label] for place, label in enumerate(step["labels"][1:]) if label != -100])


@pytest.mark.parametrize(
    ("batch_size", "accumulation", "temperature", "knows_engine"),
    [(4, 1, 1.0, False), (2, 2, 0.5, False), (1, 4, 1.0, True), (2, 2, 0.5, True)],
)
def test_the_first_step_follows_the_policy_gradient_however_it_is_cut_into_batches(
    model: LlamaForCausalLM,
    build_descent: Callable[..., SFTConfig],
    batch_size: int,
    accumulation: int,
    temperature: float,
    knows_engine: bool,
) -> None:
    """That of the policy that drew the tokens, which has a temperature; the engine recorded what it did without one."""
    expected: Any = get_peft_model(copy.deepcopy(model), LORA)
    ratios = [[1.2, 0.5, 2.0], [0.9], [1.0, 1.1, 4.0], [0.25]]  # of the model to the engine; from 3 on they are cut
    engine = [
        (score_drawn(expected, step).detach() - torch.tensor(ratio).log()).tolist()
        for step, ratio in zip(STEPS, ratios, strict=True)
    ]
    total = torch.zeros(())
    for step, ratio in zip(STEPS, ratios, strict=True):
        counts = torch.tensor(ratio).clamp(max=3.0) if knows_engine else torch.ones(len(ratio))
        total = total - step["advantage"] * (counts * score_drawn(expected, step, temperature)).sum()
    (total / 8).backward()  # the steps drew 8 tokens
    trained: Any = get_peft_model(copy.deepcopy(model), LORA)
    trained.load_state_dict(expected.state_dict())
    options = {"temperature": temperature, "engine": engine if knows_engine else None}
    build_trainer(trained, build_descent(batch_size, accumulation, max_steps=1), **options).train()
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


def test_the_log_is_the_same_however_a_step_is_cut_into_batches(
    model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig]
) -> None:
    """`kl` and `clipped` by hand: token by token, between the policy at the start and the one after a step."""
    before: Any = get_peft_model(copy.deepcopy(model), LORA)
    logs = []
    for batch_size, accumulation in ((4, 1), (2, 2)):
        trained = copy.deepcopy(before)
        arguments = build_descent(batch_size, accumulation, max_steps=2, learning_rate=200)
        trainer = build_trainer(trained, arguments, temperature=0.5)
        moved = _CopyAfterFirstStep()
        trainer.add_callback(moved)
        trainer.train()
        logs.append([entry for entry in trainer.state.log_history if "loss" in entry][1])
        trained.load_state_dict(moved.weights)
        ratios, pushed_on = [], []
        with torch.no_grad():
            for step in STEPS:
                old, new = (score_drawn(policy, step, 0.5) for policy in (before, trained))
                ratios += (new - old).exp().tolist()
                pushed_on += [step["advantage"] > 0] * len(old)
        kl = sum(1 / ratio - 1 + math.log(ratio) for ratio in ratios) / 8
        clipped = sum(ratio > 1.2 if up else ratio < 0.8 for ratio, up in zip(ratios, pushed_on, strict=True)) / 8
        assert logs[-1]["kl"] == pytest.approx(kl, rel=1e-3)
        assert logs[-1]["clipped"] == clipped
        assert 0 < clipped < 1
    assert [log["kl"] for log in logs] == pytest.approx([logs[0]["kl"]] * 2, rel=1e-3)


class _CopyAfterFirstStep(TrainerCallback):
    """Keeps the weights that the second step begins with."""

    weights: dict[str, torch.Tensor]

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step == 1:
            self.weights = copy.deepcopy(model.state_dict())


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_heads_that_are_fused_give_the_same_log_probabilities(
    model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig], temperature: float
) -> None:
    trainer = build_trainer(get_peft_model(copy.deepcopy(model), LORA), build_descent(4, 1), temperature=temperature)
    batch = trainer.data_collator(trainer.train_dataset.to_list())
    plain = {wanted: trainer._scores.compute(trainer.model, batch, wanted) for wanted in (temperature, 1.0)}
    fused = DrawnScores(trainer.model, temperature, fused=True)
    for wanted in (1.0, temperature, 1.0):
        assert_close(fused.compute(trainer.model, batch, wanted), plain[wanted])
    expected = torch.cat([score_drawn(trainer.model, step, temperature) for step in STEPS])
    assert_close(plain[temperature], expected)


@pytest.mark.parametrize(("loss", "aggregation"), [("grpo", "reply"), ("rloo", "token"), ("oapl", "token")])
def test_replies_count_alike_however_a_step_is_cut_into_batches(
    model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig], loss: str, aggregation: str
) -> None:
    """The first gradient: of the mean of a reply's tokens, of all of them, or of 2 * beta * (0 - advantage) times those."""
    expected: Any = get_peft_model(copy.deepcopy(model), LORA)
    total = torch.zeros(())
    for step in STEPS:
        scores = score_drawn(expected, step)
        total = total - step["advantage"] * (scores.mean() if aggregation == "reply" else scores.sum()) / 4
    total.backward()
    for batch_size, accumulation in ((1, 4), (2, 2)):
        trained: Any = get_peft_model(copy.deepcopy(model), LORA)
        trained.load_state_dict(expected.state_dict())
        build_trainer(trained, build_descent(batch_size, accumulation, max_steps=1), loss=loss, aggregation=aggregation).train()
        for (name, before), after in zip(expected.named_parameters(), trained.parameters(), strict=True):
            gradient = torch.zeros_like(before) if before.grad is None else before.grad
            assert_close(after.data, before.data - gradient, msg=name, rtol=1e-4, atol=1e-6)
