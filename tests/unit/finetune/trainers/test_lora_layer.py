"""A layer with an adapter computes what PEFT's own does, forth and back."""

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear
from training_cases import SHAPE
from transformers import LlamaConfig, LlamaForCausalLM

from drag_ray.finetune.start import use_start
from drag_ray.finetune.trainers.lora_layer import LoraLinear

LAYERS = ["q_proj", "o_proj", "down_proj"]
OPTIONS: dict[str, Any] = {"r": 4, "lora_alpha": 12, "target_modules": LAYERS, "task_type": "CAUSAL_LM"}


def build(dtype: torch.dtype = torch.float32, **options: Any) -> tuple[Any, Any]:
    """The same model and adapter with our layers and with PEFT's."""
    torch.manual_seed(0)
    base: Any = LlamaForCausalLM(LlamaConfig(**SHAPE))
    base.to(dtype)
    adapters = [LoraConfig(**OPTIONS, init_lora_weights=False, **options) for _ in range(2)]
    adapters[0]._register_custom_module({torch.nn.Linear: LoraLinear})
    ours, theirs = (get_peft_model(copy.deepcopy(base), adapter) for adapter in adapters)
    theirs.load_state_dict(ours.state_dict())
    kinds = [{type(layer) for layer in model.modules() if isinstance(layer, Linear)} for model in (ours, theirs)]
    assert kinds == [{LoraLinear}, {Linear}]
    return ours, theirs


def compute(model: Any, *, autocast: bool = False) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logits of two rows, and the gradients of what is trained."""
    torch.manual_seed(1)
    tokens = torch.randint(0, SHAPE["vocab_size"], (2, 9))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outputs = model(input_ids=tokens, labels=tokens)
    outputs.loss.backward()
    return outputs.logits, {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("options", [{}, {"use_rslora": True}, {"use_dora": True}, {"lora_bias": True}])
def test_logits_and_gradients_are_those_of_peft(options: dict[str, Any]) -> None:
    (logits, gradients), (expected, expected_gradients) = (compute(model.train()) for model in build(**options))
    assert len(gradients) >= 12
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(gradients, expected_gradients)


@pytest.mark.parametrize("autocast", [False, True])
def test_what_is_computed_again_for_the_backward_pass_learns_the_same(autocast: bool) -> None:
    dtype = torch.bfloat16 if autocast else torch.float32
    kept, again = (build(dtype)[0].train() for _ in range(2))
    again.gradient_checkpointing_enable({"use_reentrant": False})
    entered = Counter[str]()
    for name, layer in again.named_modules():
        if isinstance(layer, LoraLinear):
            layer.register_forward_pre_hook(lambda *_, name=name: entered.update([name]))
    (logits, gradients), (expected, expected_gradients) = (compute(model, autocast=autocast) for model in (again, kept))
    assert set(entered.values()) == {2}  # forth, and once more on the way back
    assert len(gradients) == 2 * len(entered)
    torch.testing.assert_close(logits, expected, rtol=0, atol=0)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=0)


def test_under_autocast_the_input_is_not_copied_to_float32_and_the_numbers_are_as_near() -> None:
    exact_logits, exact = compute(build()[1])
    (logits, gradients), (expected, others) = (compute(model, autocast=True) for model in build(torch.bfloat16))
    assert (logits - exact_logits).norm() < 1.2 * (expected - exact_logits).norm()
    for name, gradient in gradients.items():
        assert gradient.dtype == torch.float32
        assert (gradient - exact[name]).norm() < 1.3 * (others[name] - exact[name]).norm() + 0.01 * exact[name].norm()
    ours, _ = build(torch.bfloat16)
    kept: list[torch.dtype] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: (kept.append(saved.dtype), saved)[1], lambda saved: saved):
        layer = next(module for module in ours.modules() if isinstance(module, LoraLinear))
        with torch.autocast("cpu", torch.bfloat16):
            layer(torch.ones(1, 3, SHAPE["hidden_size"], dtype=torch.bfloat16, requires_grad=True))
    assert set(kept) == {torch.bfloat16}


def test_what_is_switched_off_merged_or_of_another_type_goes_the_way_of_peft() -> None:
    ours, theirs = build()
    with torch.no_grad(), use_start(ours), use_start(theirs):
        torch.testing.assert_close(ours(torch.tensor([[1, 2, 3]])).logits, theirs(torch.tensor([[1, 2, 3]])).logits)
    mixed, _ = build(torch.bfloat16)  # float32 adapters, without autocast
    assert compute(mixed)[0].isfinite().all()
    before = ours(torch.tensor([[1, 2, 3]])).logits
    ours.merge_adapter()
    torch.testing.assert_close(ours(torch.tensor([[1, 2, 3]])).logits, before, rtol=1e-4, atol=1e-4)


def test_an_adapter_that_is_added_later_is_taken_too() -> None:
    ours, theirs = build()
    for model in (ours, theirs):
        torch.manual_seed(5)
        model.add_adapter("ref", model.peft_config["default"])
        model.set_adapter("ref")
    torch.testing.assert_close(compute(ours)[0], compute(theirs)[0])


def test_a_layer_that_gets_no_token_hands_none_on() -> None:
    layers = [next(module for module in model.modules() if isinstance(module, Linear)) for model in build()]
    assert {layer(torch.ones(0, SHAPE["hidden_size"])).shape for layer in layers} == {(0, SHAPE["hidden_size"])}
