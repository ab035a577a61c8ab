"""The loss over the trained positions alone is the loss that transformers computes over all of them."""

import pytest
import torch
from transformers import LlamaForCausalLM

from drag_ray.finetune.cpu_trainer import compute_trained_loss


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


def test_loss_and_gradients_equal_those_of_the_whole_projection(model: LlamaForCausalLM, inputs: dict[str, torch.Tensor]) -> None:
    expected = model(**inputs).loss
    expected_gradient = torch.autograd.grad(expected, model.model.embed_tokens.weight)[0]
    loss = compute_trained_loss(model, inputs)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, model.model.embed_tokens.weight)[0], expected_gradient)


def test_a_step_of_several_batches_divides_by_its_own_count(model: LlamaForCausalLM, inputs: dict[str, torch.Tensor]) -> None:
    trained = int((inputs["labels"] != -100).sum())
    torch.testing.assert_close(compute_trained_loss(model, inputs, 2 * trained), compute_trained_loss(model, inputs) / 2)
