"""The loss over the trained positions alone is the one that transformers computes over all of them; with weights, the one that
they define, row by row."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from datasets import Dataset
from embedded_tokenizer import load_shared_tokenizer
from peft import LoraConfig, get_peft_model
from transformers import LlamaForCausalLM
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
from trl.trainer.sft_config import SFTConfig
from trl.trainer.utils import add_fused_lm_head

from drag_ray.finetune.arguments import build_deepspeed_settings
from drag_ray.finetune.trainers.collator import RowCollator
from drag_ray.finetune.trainers.trained_tokens import TrainedTokensTrainer, compute_log_probabilities, compute_trained_loss

pytestmark = pytest.mark.seconds

ROWS = [
    {"input_ids": [5, 6, 7, 8, 9], "labels": [-100, -100, 7, 8, 9], "weight": 0.5},
    {"input_ids": [9, 8, 7], "labels": [-100, 8, -100], "weight": 2.0},
    {"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, 4], "weight": 0.1},
    {"input_ids": [4, 4, 4, 2], "labels": [-100, -100, -100, 2], "weight": 1.0},
]


@pytest.fixture
def inputs() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    input_ids = torch.randint(0, 50, (3, 12))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 9:] = 0
    labels = torch.full_like(input_ids, -100)
    labels[0, 8:12] = input_ids[0, 8:12]
    labels[1, 6:9] = input_ids[1, 6:9]
    labels[2, [3, 10]] = input_ids[2, [3, 10]]
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def test_loss_and_gradients_equal_those_of_the_whole_projection_and_a_step_divides_by_its_own_count(
    model: LlamaForCausalLM, inputs: dict[str, torch.Tensor]
) -> None:
    expected = model(**inputs).loss
    expected_gradient = torch.autograd.grad(expected, model.model.embed_tokens.weight)[0]
    loss = compute_trained_loss(model, inputs)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, model.model.embed_tokens.weight)[0], expected_gradient)
    trained = int((inputs["labels"] != -100).sum())
    torch.testing.assert_close(compute_trained_loss(model, inputs, 2 * trained), compute_trained_loss(model, inputs) / 2)


def test_log_probabilities_are_those_of_the_logits_also_with_the_fused_head(
    model: LlamaForCausalLM, inputs: dict[str, torch.Tensor]
) -> None:
    scores = model(**{name: values for name, values in inputs.items() if name != "labels"}).logits[:, :-1].log_softmax(-1)
    labels = inputs["labels"][:, 1:]
    expected = scores.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)[labels != -100]
    patched = copy.deepcopy(model)
    add_fused_lm_head(patched)
    for network, fused in ((model, False), (patched, True)):
        log_probabilities, is_trained = compute_log_probabilities(network, inputs, fused=fused)
        torch.testing.assert_close(log_probabilities[is_trained], expected)
        trained = (network.model.embed_tokens.weight, network.lm_head.weight)
        gradient, wanted = (
            torch.autograd.grad(values.sum(), trained, retain_graph=True)
            for values in (-log_probabilities, compute_trained_loss(network, inputs, num_tokens=1))
        )
        torch.testing.assert_close(gradient, wanted)
        assert all(values.any() for values in gradient)


def compute_row_losses(model: LlamaForCausalLM) -> tuple[list[torch.Tensor], list[int]]:
    """For each row the sum of its tokens' losses as transformers computes it, and how many tokens it learns."""
    counts = [sum(label != -100 for label in row["labels"][1:]) for row in ROWS]
    losses = [
        model(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])).loss * count
        for row, count in zip(ROWS, counts, strict=True)
    ]
    return losses, counts


def compute_expected_loss(model: LlamaForCausalLM) -> torch.Tensor:
    losses, counts = compute_row_losses(model)
    weights = [row["weight"] for row in ROWS]
    total = torch.stack([loss * weight for loss, weight in zip(losses, weights, strict=True)]).sum()
    return total / sum(counts)


def test_tokens_count_as_their_rows_weigh_in_the_sum_and_once_in_what_divides_it(model: LlamaForCausalLM) -> None:
    width = max(len(row["input_ids"]) for row in ROWS)

    def pad(name: str, value: int) -> torch.Tensor:
        return torch.tensor([row[name] + [value] * (width - len(row[name])) for row in ROWS])

    attention = (pad("labels", -1) != -1).long()
    rows = torch.arange(len(ROWS)).unsqueeze(1).expand(-1, width)
    inputs = {"input_ids": pad("input_ids", 0), "labels": pad("labels", -100), "attention_mask": attention, "rows": rows}
    loss = compute_trained_loss(model, {**inputs, "weight": torch.tensor([row["weight"] for row in ROWS])})
    torch.testing.assert_close(loss, compute_expected_loss(model))
    equal = compute_trained_loss(model, {**inputs, "weight": torch.full((4,), 3.0)})
    torch.testing.assert_close(equal, 3 * compute_trained_loss(model, inputs))


@pytest.mark.parametrize(("batch_size", "accumulation"), [(2, 2), (1, 4)])
def test_a_step_is_the_same_however_it_is_cut_into_batches(
    model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig], batch_size: int, accumulation: int
) -> None:
    expected = copy.deepcopy(model)
    compute_expected_loss(expected).backward()
    trained = train_one_step(copy.deepcopy(model), build_descent(batch_size, accumulation, max_steps=1))
    for (name, before), after in zip(expected.named_parameters(), trained.parameters(), strict=True):
        assert before.grad is not None
        torch.testing.assert_close(after.data, before.data - before.grad, msg=name, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weight", [0.5, 2.0, 0.0])
def test_a_row_alone_in_its_step_moves_the_model_as_far_as_it_weighs(
    model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig], weight: float
) -> None:
    expected = copy.deepcopy(model)
    [row] = ROWS[:1]
    expected(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])).loss.backward()
    trained = train_one_step(copy.deepcopy(model), build_descent(1, 1, max_steps=1), [{**row, "weight": weight}])
    for (name, before), after in zip(expected.named_parameters(), trained.parameters(), strict=True):
        assert before.grad is not None
        torch.testing.assert_close(after.data, before.data - weight * before.grad, msg=name, rtol=1e-4, atol=1e-6)


def train_one_step(model: LlamaForCausalLM, arguments: SFTConfig, rows: list[dict[str, Any]] = ROWS) -> Any:
    trainer = build_trainer(model, arguments, rows)
    trainer.train()
    return trainer.model


def build_trainer(model: LlamaForCausalLM, arguments: SFTConfig, rows: list[dict[str, Any]] = ROWS) -> TrainedTokensTrainer:
    return TrainedTokensTrainer(
        model=model,
        args=arguments,
        data_collator=RowCollator(pad_token_id=0, number="weight"),
        train_dataset=Dataset.from_list([{"name": str(number), **row} for number, row in enumerate(rows)]),
        processing_class=load_shared_tokenizer(),
    )


def test_deepspeed_gives_its_type_to_what_the_model_reads_and_not_to_what_the_loss_reads(
    model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = build_trainer(model, build_descent(1, 1, max_steps=1))
    settings = HfTrainerDeepSpeedConfig(build_deepspeed_settings("zero2", use_gpu=True))
    trainer.args.bf16 = True
    settings.trainer_config_process(trainer.args)
    # Its processes would be on GPUs, which this machine need not have; the batch is made ready before they are asked anything.
    monkeypatch.setattr(AcceleratorState, "deepspeed_plugin", SimpleNamespace(hf_ds_config=settings))
    trainer.is_deepspeed_enabled = True
    numbers = {
        "weight": torch.tensor([0.1]),
        "advantage": torch.tensor([-0.3]),
        "engine_log_probabilities": torch.tensor([-20.06]),
    }
    found = trainer._prepare_inputs({"input_ids": torch.tensor([[1]]), "pixel_values": torch.tensor([0.1]), **numbers})
    assert {name: found[name] for name in numbers} == numbers
    assert found["pixel_values"].dtype == torch.bfloat16


def test_the_loss_of_weighted_rows_by_the_head_that_gpus_have_is_that_of_the_whole_projection(
    model: LlamaForCausalLM, inputs: dict[str, torch.Tensor]
) -> None:
    adapted: Any = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    weighted = inputs | {"weight": torch.tensor([0.5, 1.0, 2.0]), "rows": torch.arange(3).unsqueeze(1).repeat(1, 12)}

    def learn(*, fused: bool) -> list[torch.Tensor]:
        adapted.zero_grad()
        loss = compute_trained_loss(adapted, weighted, fused=fused)
        loss.backward()
        return [loss.detach(), *(weight.grad for weight in adapted.parameters() if weight.grad is not None)]

    whole = learn(fused=False)
    add_fused_lm_head(adapted.get_base_model())
    torch.testing.assert_close(learn(fused=True), whole, atol=1e-6, rtol=1e-5)
    assert len(whole) > 1
