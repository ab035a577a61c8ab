import itertools

import numpy as np
import pytest
from evaluation_cases import build_questions, build_search_for
from factories import build_trajectory

from drag_ray.evaluate.measure import CRITERIA
from drag_ray.evaluate.results import compute_result
from drag_ray.evaluate.statistics.pass_at_k import compute_pass_at_k, compute_pass_rates


@pytest.mark.parametrize(("num_samples", "num_correct"), [(1, 0), (1, 1), (5, 2), (6, 6), (7, 1)])
def test_it_is_the_share_of_all_draws_that_hold_a_correct_sample(num_samples, num_correct):
    for k in range(1, num_samples + 1):
        draws = list(itertools.combinations(range(num_samples), k))
        assert compute_pass_at_k(num_samples, num_correct, k) == pytest.approx(
            np.mean([any(sample < num_correct for sample in draw) for draw in draws])
        )


@pytest.mark.parametrize("k", [0, 4])
def test_more_samples_than_there_are_say_nothing(k):
    with pytest.raises(ValueError, match="expected k of 1 to 3"):
        compute_pass_at_k(3, 1, k)


def test_rates_are_by_samples_and_by_turns_over_questions():
    first, second = build_questions(2)

    def roll_out(question, ranks, index):
        return compute_result(
            build_trajectory(*(build_search_for(question, "q", r) for r in ranks), question=question, sample_index=index)
        )

    samples = [
        roll_out(first, [1], 0),
        roll_out(first, [None, None], 1),
        roll_out(second, [None, 2], 0),
        roll_out(second, [None, 9], 1),
        roll_out(second, [None], 2),
    ]
    rates = {
        (rate.num_samples, rate.num_turns): rate.value for rate in compute_pass_rates(samples, CRITERIA["ranking"], 0.95, 200)
    }
    # Two of the first question's samples, three of the second's, so k goes to 2.
    assert rates == pytest.approx({(1, 1): (1 / 2 + 0) / 2, (2, 1): 1 / 2, (1, 2): (1 / 2 + 1 / 3) / 2, (2, 2): (1 + 2 / 3) / 2})
