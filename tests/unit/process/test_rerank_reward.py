"""V-Retrver's reward, against values computed by hand."""

import itertools
import math
import re

import pytest

from drag_ray.recipes.v_retrver.reward import compute_format_term, compute_rank_term, compute_rerank_reward

GOOD = "<think>The second shows it.</think><answer>[2, 1]</answer>"


@pytest.mark.parametrize(
    ("reply", "term"),
    [
        (GOOD, 1.0),
        ("<answer>[2, 1]</answer>", 0.0),
        ("So: <think>x</think><answer>[2, 1]</answer>", 0.0),
        ("<think>x</think> so <answer>[2, 1]</answer> it is", 1.0),
        ("<think><answer>second</answer></think><answer>[2, 1]</answer>", 0.5),
        ("<think>x</think><answer>second</answer>", 0.5),
        ("<think>x</think>[2, 1]", 0.0),
        ("<think>x</think><answer>[__import__('os')]</answer>", 0.5),
        ("", 0.0),
    ],
)
def test_the_form_is_worth_half_and_the_list_the_other_half(reply: str, term: float) -> None:
    assert compute_format_term(reply) == term


def test_the_form_is_the_published_one() -> None:
    published = re.compile("<think>.*?</think>.*<answer>.*?</answer>.*", re.DOTALL)
    pieces = ("<think>", "</think>", "<answer>", "</answer>", "[2, 1]", "\n")
    for number in range(6):
        for chosen in itertools.product(pieces, repeat=number):
            reply = "".join(chosen)
            assert (compute_format_term(reply) > 0) is bool(published.fullmatch(reply))


def test_the_rank_is_worth_a_gaussian() -> None:
    assert [compute_rank_term(rank) for rank in (1, 2, 3, None)] == pytest.approx([1, math.exp(-0.5), math.exp(-2), 0])
    assert compute_rank_term(2, deviation=0.5) == pytest.approx(math.exp(-2))


@pytest.mark.parametrize(
    ("rank", "num_calls", "share", "reward"),
    [
        (1, 0, 0.0, 1.0),
        (2, 0, 0.0, 0.3 + 0.7 * 0.60653),
        (None, 0, 0.0, 0.3),
        (1, 1, 0.25, 1.0 + 0.6 * 0.35),
        (1, 1, 0.6, 1.0),
        (1, 3, 0.9, 0.9),
        (1, 1, 0.0, 1.36),
        (None, 40, 0.9, -0.5),
    ],
)
def test_the_terms_add_up_within_their_bounds(rank: int | None, num_calls: int, share: float, reward: float) -> None:
    assert compute_rerank_reward(GOOD, rank, num_calls, share) == pytest.approx(reward, abs=1e-5)
