"""Pairs that share their prompt, and adapters within matrix products, on a GPU: as near to exact numbers as other ways are."""

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM

from drag_ray.finetune.trainers.collator import PairCollator
from drag_ray.finetune.trainers.lora_layer import LoraLinear
from drag_ray.finetune.trainers.shared_prefixes import unfold_mask
from drag_ray.finetune.trainers.trained_tokens import compute_log_probabilities, find_rows

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]

SIZES = [(700, 40, 90), (301, 64, 13), (1024, 5, 30)]
"""Tokens of each pair's prompt and replies."""


def build_pairs() -> list[dict[str, Any]]:
    pairs = []
    for of_prompt, *of_replies in SIZES:
        prompt = torch.randint(1, 500, (of_prompt,)).tolist()
        replies = [torch.randint(1, 500, (size,)).tolist() for size in of_replies]
        sides = [{"input_ids": prompt + reply, "labels": [-100] * of_prompt + reply} for reply in replies]
        pairs.append({"chosen": sides[0], "rejected": sides[1], "image_keys": []})
    return pairs


def build_model(layer: type | None, base: Any) -> Any:
    torch.manual_seed(1)
    adapter = LoraConfig(r=8, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    if layer:
        adapter._register_custom_module({torch.nn.Linear: layer})
    return get_peft_model(copy.deepcopy(base), adapter).cuda()


def compute(model: Any, pairs: list[dict[str, Any]], *, shares: bool, autocast: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-probability of each reply, and the gradient of the margins' sum."""
    batch = {name: value.cuda() for name, value in PairCollator(0, shares=shares)(pairs).items()}
    assert ("position_ids" in batch) is shares
    if shares:
        batch["attention_mask"] = unfold_mask(batch)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        scores, is_trained = compute_log_probabilities(model, batch, fused=False)
    drawn = scores[is_trained]
    rows = drawn.new_zeros(2 * len(pairs)).index_add(0, find_rows(batch), drawn)
    chosen, rejected = rows.chunk(2)
    (chosen - rejected).sum().backward()
    trained = (weight.grad for weight in model.parameters() if weight.grad is not None)
    return rows.detach(), torch.cat([gradient.flatten().double() for gradient in trained])


def test_pairs_that_share_and_layers_that_add_are_as_near_as_rows_and_layers_of_peft() -> None:
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2}
    base: Any = Qwen2ForCausalLM(Qwen2Config(vocab_size=500, num_attention_heads=4, num_key_value_heads=2, **shape))
    pairs = build_pairs()
    exact_rows, exact = compute(build_model(None, base), pairs, shares=False, autocast=False)
    shared_rows, shared = compute(build_model(LoraLinear, base), pairs, shares=True, autocast=False)
    torch.testing.assert_close(shared_rows, exact_rows, rtol=1e-3, atol=1e-2)
    assert (shared - exact).norm() < 1e-2 * exact.norm()
    half = base.to(torch.bfloat16)
    _, padded = compute(build_model(None, half), pairs, shares=False, autocast=True)
    _, together = compute(build_model(LoraLinear, half), pairs, shares=True, autocast=True)
    assert (together - exact).norm() < 1.2 * (padded - exact).norm() + 0.01 * exact.norm()
