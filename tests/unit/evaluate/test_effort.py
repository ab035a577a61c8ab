import itertools
import math

import numpy as np
import pytest
from evaluation_cases import build_comparison, build_questions, build_search_for, build_searching
from factories import build_answer, build_trajectory, build_turn
from scipy import stats

from drag_ray.evaluate.effort import NO_PRICES, Prices, Ratio, compute_efforts, compute_kuiper
from drag_ray.evaluate.measure import CRITERIA
from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.statistics.intervals import Resampling


def compute(outcomes, prices=NO_PRICES):
    """The effort of a policy by its rollouts: how many unreadable replies come before the search, and whether that finds."""
    questions = build_questions(len(outcomes))
    rollouts = [
        build_trajectory(*[build_turn()] * num_before, build_search_for(question, "q", 1 if found else None), question=question)
        for question, (num_before, found) in zip(questions, outcomes, strict=True)
    ]
    results = compute_results({"base": rollouts}, questions)
    return compute_efforts(results, CRITERIA["ranking"], prices, Resampling(np.arange(len(outcomes)), num_resamples=5_000))[
        "base"
    ]


def test_what_a_solved_question_costs_is_all_that_was_spent_over_what_was_solved():
    effort = compute([(0, True), (1, True), (4, False), (2, False)], Prices(prompt=2.0, completion=10.0))
    # 11 turns of 3 tokens read and 2 written, in 4 rollouts of one second.
    assert effort.tokens_per_solved.value == 22 / 2
    assert effort.seconds_per_solved.value == 4 / 2
    assert effort.cost_per_solved.value == pytest.approx((33 * 2.0 + 22 * 10.0) / 1e6 / 2)
    assert effort.wasted_effort.value == (5 + 3) / (1 + 2)  # of the means of two rollouts each


def test_an_interval_of_a_ratio_holds_what_other_questions_may_give():
    effort = compute([(0, True), (0, False)] * 30)
    ratio = effort.tokens_per_solved
    assert ratio.value == 4.0
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 4.0 < ratio.high
    fewest, most = stats.binom.ppf([0.025, 0.975], 60, 0.5)
    assert (ratio.low, ratio.high) == pytest.approx((120 / most, 120 / fewest), rel=0.05)


def test_nothing_solved_costs_nothing_that_can_be_said_and_no_price_no_cost():
    effort = compute([(0, False), (1, False)])
    assert effort.tokens_per_solved == effort.wasted_effort == Ratio()
    assert compute([(0, True)]).cost_per_solved == Ratio()


def test_a_policy_without_a_model_has_no_effort():
    questions = build_questions(2)
    rollouts = [build_trajectory(build_search_for(question, "q", 1), question=question, turns=()) for question in questions]
    assert (
        compute_efforts(compute_results({"q": rollouts}, questions), CRITERIA["ranking"], NO_PRICES, Resampling(np.arange(2)))
        == {}
    )


def reference_kuiper(turns, is_solved):
    """As MADQA's eval/metrics.py defines it: sorted by steps, the range of the running sum of residuals."""
    pairs = sorted(zip(turns, is_solved, strict=True), key=lambda pair: pair[0])
    residuals = [solved - sum(is_solved) / len(is_solved) for _, solved in pairs]
    sums = list(itertools.accumulate(residuals))
    return max(sums) - min(sums)


def test_the_kuiper_statistic_is_that_of_madqa_where_no_efforts_are_equal():
    generator = np.random.default_rng(1)
    for _ in range(50):
        turns = generator.permutation(30)
        is_solved = generator.integers(0, 2, size=30)
        found = compute_kuiper(list(turns), list(is_solved))
        # The last sum is 0 for both, so that the range always holds 0.
        assert found == pytest.approx(reference_kuiper(turns, is_solved))


def test_rollouts_of_equal_effort_count_together_whatever_their_order():
    turns, is_solved = [1, 1, 1, 1, 2, 2], [True, True, True, False, False, False]
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 60):
        # By hand: after the first four the sum is 3 - 4 / 2 = 1, after all 0.
        assert compute_kuiper([turns[i] for i in order], [is_solved[i] for i in order]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("turns", "is_solved"), [([], []), ([2, 2], [True, False]), ([1, 2], [True, True]), ([1, 2], [False] * 2)]
)
def test_without_differences_in_effort_or_outcome_there_is_no_kuiper_statistic(turns, is_solved):
    assert compute_kuiper(turns, is_solved) is None


def test_rollouts_that_never_began_have_no_turns_to_waste():
    questions = build_questions(3)
    rollouts = [
        build_trajectory(build_search_for(questions[0], "q", 1), build_answer(), question=questions[0]),
        build_trajectory(build_search_for(questions[1], "q", None), question=questions[1]),
    ]
    effort = compute_efforts(
        compute_results({"base": rollouts}, questions), CRITERIA["ranking"], NO_PRICES, Resampling(np.arange(3))
    )["base"]
    assert effort.wasted_effort.value == 1 / 2
    assert effort.tokens_per_solved.value == 6.0
    assert math.isclose(effort.kuiper or 0, 0.5)  # unsolved after one turn: -1/2, then 0


def test_success_by_turn_is_that_computed_by_hand():
    comparison = build_searching()
    assert list(comparison.turns) == ["base"]
    first, second = comparison.turns["base"]
    assert (first.turn, first.num_pages, second.turn, second.num_pages) == (1, 3, 2, 5)
    shares = [(row.success, row.first_search, row.question) for row in (first, second)]
    assert shares == [pytest.approx((1 / 3, 1 / 3, 1 / 3)), pytest.approx((2 / 3, 1 / 3, 2 / 3))]
    assert (second.difference, second.low, second.high) == (0, 0, 0)


def test_who_searches_once_has_no_later_turns():
    assert build_comparison({"base": [1, None], "tuned": [2, 3]}).turns == {}


def test_the_question_need_not_be_among_the_policies():
    assert build_searching("other").turns == build_searching("question").turns


def test_a_question_that_nobody_searched_is_not_compared_with():
    [turns] = build_searching("other", knows_question=False).turns.values()
    assert [(row.question, row.difference, row.low) for row in turns] == [(None, None, None)] * 2
    assert turns[1].first_search == pytest.approx(1 / 3)
