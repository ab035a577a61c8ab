"""The losses of reinforcement learning, beside values worked out by hand."""

import pytest
import torch
from torch.testing import assert_close

from drag_ray.finetune.losses import LOSSES, DrawnTokens, LossOptions, compute_engine_gap, compute_gains, compute_kl, is_clipped
from drag_ray.finetune.methods.grpo import GRPO, standardise

OPTIONS = LossOptions(clip_range=0.2, clip_high=0.5, max_engine_ratio=3.0, beta=0.5)


def draw(ratios: list[list[float]], advantages: list[float], engine_ratios: list[list[float]] | None = None) -> DrawnTokens:
    """Replies whose tokens are now so many times as likely as before, and then so many times as likely as to the engine."""
    rows = torch.tensor([number for number, of_row in enumerate(ratios) for _ in of_row])
    log_ratios = torch.tensor([ratio for of_row in ratios for ratio in of_row]).log()
    gap = torch.tensor([ratio for of_row in engine_ratios or [] for ratio in of_row]).log() if engine_ratios else rows * 0.0
    old = torch.full_like(log_ratios, -2.0)
    return DrawnTokens(old + log_ratios, old, old, gap, torch.tensor(advantages)[rows], rows, len(ratios))


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "clipped"),
    [
        (1.0, 2.0, 2.0, False),
        (1.4, 2.0, 2.8, False),  # upwards there is more room
        (1.6, 2.0, 3.0, True),  # likelier by more than a half: no more to be had
        (1.6, -2.0, -3.2, False),  # likelier, and it should not be: the whole loss
        (0.5, -2.0, -1.6, True),
        (0.5, 2.0, 1.0, False),
    ],
)
def test_a_ratio_counts_up_to_its_two_bounds(ratio: float, advantage: float, gain: float, clipped: bool) -> None:
    before, earned = torch.tensor([-1.0]), torch.tensor([advantage])
    now = (before + torch.tensor(ratio).log()).requires_grad_()
    gains = compute_gains(now, before, earned, clip_range=0.2, clip_high=0.5)
    assert_close(gains, torch.tensor([gain]))
    assert is_clipped(now, before, earned, clip_range=0.2, clip_high=0.5).item() == clipped
    assert (torch.autograd.grad(gains.sum(), now)[0].item() == 0) == clipped


def test_divergence_and_ratios_to_the_engine_are_those_of_the_distributions() -> None:
    now, before = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.4, 0.4, 0.2])
    assert_close(compute_kl(now.log(), now.log()), torch.zeros(3))
    estimate = (now * compute_kl(now.log(), before.log())).sum()  # expected over what the policy of now draws
    assert_close(estimate, (now * (now / before).log()).sum())
    old = torch.tensor([0.6, 0.3, 0.2]).log()
    engine = torch.tensor([0.5, 0.6, torch.nan]).log()
    assert_close(compute_engine_gap(old, engine).exp(), torch.tensor([1.2, 0.5, 1.0]))


@pytest.mark.parametrize(
    ("loss", "aggregation", "expected"),
    [
        # Tokens: -(1.2 * 1 + min(2, 1.5) * 1) of the first reply, and -(1 * -2) of the second.
        ("grpo", "token", -2.7 + 2.0),
        ("reinforce_pp", "token", -2.7 + 2.0),
        ("grpo", "reply", -2.7 / 2 + 2.0),
        # Replies: the first is 1.2 * 2 times as likely as before, which counts up to 1.5.
        ("rloo", "token", -1.5 + 2.0),
        # (0.5 * ln 2.4 - 1)^2 and (0.5 * 0 + 2)^2
        ("oapl", "token", 0.316149 + 4.0),
    ],
)
def test_a_loss_of_two_replies(loss: str, aggregation: str, expected: float) -> None:
    drawn = draw([[1.2, 2.0], [1.0]], [1.0, -2.0])
    total = LOSSES[loss].total(drawn, OPTIONS, 0.0, aggregation)  # type: ignore[arg-type]
    assert total.item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("loss", "expected"),
    # Tokens count .5 and 3 (cut from 4) times; the reply 2 times; regression reaches back to the engine: ln 2 beyond ln 1.
    [("grpo", -(0.5 + 3.0)), ("rloo", -2.0), ("oapl", (0.5 * 0.693147 - 1) ** 2)],
)
def test_tokens_count_as_often_as_they_are_likelier_than_to_the_engine_within_bounds(loss: str, expected: float) -> None:
    drawn = draw([[1.0, 1.0]], [1.0], [[0.5, 4.0]])
    assert LOSSES[loss].total(drawn, OPTIONS, 0.0, "token").item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("loss", "aggregation", "expected"), [("grpo", "token", 3.0), ("grpo", "reply", 1.5), ("rloo", "token", 3.0)]
)
def test_the_way_from_the_start_costs_by_token_or_by_reply(loss: str, aggregation: str, expected: float) -> None:
    drawn = draw([[1.0, 1.0], [1.0]], [0.0, 0.0])
    start = drawn.old + torch.tensor([2.0, 1.0, 1.0]).log()
    far = DrawnTokens(drawn.now, drawn.old, start, drawn.engine_gap, drawn.advantage, drawn.rows, 2)
    one = 2 - torch.tensor(2.0).log().item() - 1  # of the first token; the others are as they were
    total = LOSSES[loss].total(far, OPTIONS, 3.0, aggregation)  # type: ignore[arg-type]
    assert total.item() == pytest.approx(expected * one, abs=1e-5)


@pytest.mark.parametrize(("loss", "expected"), [("grpo", [False] * 3), ("rloo", [True, True, False]), ("oapl", [False] * 3)])
def test_tokens_are_clipped_by_themselves_or_with_their_reply(loss: str, expected: list[bool]) -> None:
    drawn = draw([[1.3, 1.3], [1.3]], [1.0, 1.0])  # 1.69 together
    assert LOSSES[loss].find_clipped(drawn, OPTIONS).tolist() == expected


def test_advantages_in_units_of_their_deviation() -> None:
    rows = [{"advantage": value} for value in (1.0, 3.0, 5.0, 7.0)]
    standardise(rows)
    assert [row["advantage"] for row in rows] == pytest.approx([value / 5**0.5 for value in (1, 3, 5, 7)])
    standardise(same := [{"advantage": 0.3}, {"advantage": 0.1 + 0.2}])  # but for rounding
    assert [row["advantage"] for row in same] == pytest.approx([0.3, 0.3])
    assert {name for name, loss in LOSSES.items() if loss.is_standardised} == {"reinforce_pp"}


def test_a_bound_upwards_that_is_not_given_is_that_downwards() -> None:
    assert GRPO(clip_range=0.1).loss_options.clip_high == 0.1
    assert GRPO(clip_range=0.1, clip_high=0.3).loss_options.clip_high == 0.3
