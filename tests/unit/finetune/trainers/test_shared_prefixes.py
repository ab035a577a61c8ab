"""Rows that begin alike are computed once, and come to what each would come to by itself."""

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from training_cases import SHAPE
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MixtralConfig, Qwen2Config, Qwen2ForCausalLM

from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.finetune.methods.grpo import StepCollator
from drag_ray.finetune.trainers import shared_prefixes
from drag_ray.finetune.trainers.policy_gradient import gather_drawn
from drag_ray.finetune.trainers.shared_prefixes import can_share_prefixes, collate_pack, count_shared, cut_packs
from drag_ray.finetune.trainers.trained_tokens import compute_log_probabilities


def build_row(prompt: list[int], reply: list[int], advantage: float = 1.0, known: bool = False) -> dict[str, Any]:
    return {
        "input_ids": prompt + reply,
        "labels": [IGNORED_LABEL] * len(prompt) + reply,
        "image_keys": [],
        "advantage": advantage,
        "engine_log_probabilities": [-float(token) for token in reply] if known else [],
    }


QUESTION = [1, 2, 3, 4, 5, 6]
ROWS = [
    build_row(QUESTION, [7, 8, 9], 0.5),
    build_row(QUESTION, [7, 8, 10], -0.5, known=True),
    build_row([*QUESTION, 7, 8, 9, 20, 21], [11, 12], 0.25),  # the second reply of the first rollout
    build_row([1, 2, 30, 31], [7], 2.0),  # another question
    build_row([40], [41, 42], -1.0),  # nothing in common
]


def test_a_row_shares_what_it_begins_with_but_for_what_tells_its_reply() -> None:
    assert count_shared(ROWS[0], ROWS[1]) == 5  # its last token of the prompt tells the first of the reply
    assert count_shared(ROWS[0], ROWS[2]) == 9
    assert count_shared(ROWS[0], ROWS[3]) == 2
    assert count_shared(ROWS[0], ROWS[4]) == 0
    assert count_shared(build_row([1, 2], [3]), build_row([1, 2, 3, 4], [5])) == 3


def test_packs_hold_each_row_once_and_no_more_tokens_than_they_may() -> None:
    packs = list(cut_packs(ROWS, 1000))
    assert [len(pack) for pack in packs] == [5]
    assert collate_pack(packs[0])["input_ids"].shape == (1, 9 + 4 + 4 + 3 + 3)
    packs = list(cut_packs(ROWS, 14))
    assert sorted(row["advantage"] for pack in packs for row in pack) == sorted(row["advantage"] for row in ROWS)
    sizes = [collate_pack(pack)["input_ids"].shape[1] for pack in packs]
    assert len(packs) > 1
    assert max(sizes) <= 14
    assert [len(pack) for pack in cut_packs(ROWS, 1)] == [1] * 5  # a row is never cut


@pytest.mark.parametrize("fused", [False, True])
def test_tokens_are_as_likely_as_in_rows_of_their_own_and_teach_the_same(fused: bool) -> None:
    from trl.trainer.utils import add_fused_lm_head

    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**SHAPE)).eval()
    assert can_share_prefixes(model)
    if fused:
        add_fused_lm_head(model)
    (pack,) = cut_packs(ROWS, 1000)
    found, gradients = [], []
    for batch in (StepCollator(0)(pack), collate_pack(pack)):
        model.zero_grad()
        with sdpa_kernel(SDPBackend.MATH):
            scores, is_drawn = compute_log_probabilities(model, batch, fused=fused)
        now = scores[is_drawn]
        drawn = gather_drawn(batch, now, now.detach(), now.detach(), torch.zeros_like(now))
        (drawn.now * drawn.advantage).sum().backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]))
        found.append((drawn, batch["engine_log_probabilities"][batch["labels"] != IGNORED_LABEL]))
    (alone, alone_known), (together, together_known) = found
    torch.testing.assert_close(together.now, alone.now)
    torch.testing.assert_close(gradients[1], gradients[0])
    assert torch.equal(together.rows, alone.rows)
    assert torch.equal(together.advantage, alone.advantage)
    assert torch.equal(together_known.nan_to_num(9), alone_known.nan_to_num(9))
    assert together.num_rows == 5


@pytest.mark.parametrize(
    ("config", "shares"),
    [
        (LlamaConfig(**SHAPE), True),
        (MistralConfig(**SHAPE, sliding_window=8), False),
        (Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=1), False),
        (MixtralConfig(**SHAPE, num_local_experts=2, output_router_logits=True), False),
    ],
)
def test_models_that_do_not_see_the_whole_context_are_left_out(config: Any, shares: bool) -> None:
    from transformers import AutoModelForCausalLM

    assert can_share_prefixes(AutoModelForCausalLM.from_config(config)) is shares


def test_another_attention_is_left_out() -> None:
    config = LlamaConfig(**SHAPE)
    config._attn_implementation = "eager"
    assert not can_share_prefixes(LlamaForCausalLM(config))


def test_packs_are_bounded_by_their_mask_and_dealt_to_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(cut_packs(ROWS, 1000, num_workers=2))) >= 2
    monkeypatch.setattr(shared_prefixes, "_MOST_TOKENS", 9)
    packs = list(cut_packs(ROWS, 1000))
    sizes = [collate_pack(pack)["input_ids"].shape[1] for pack in packs]
    assert all(size <= 9 or len(pack) == 1 for size, pack in zip(sizes, packs, strict=True))
    assert sum(map(len, packs)) == len(ROWS)
