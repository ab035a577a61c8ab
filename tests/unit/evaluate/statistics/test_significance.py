import itertools

import numpy as np
import pytest
from scipy import stats

from drag_ray.evaluate.statistics.intervals import (
    bootstrap_means,
    compute_detectable_difference,
    compute_holm_levels,
    compute_mcnemar_p_value,
    compute_num_needed,
    compute_sign_flip_p_values,
    compute_standard_errors,
    holm,
)


def compute_p_values(first, second, num_permutations, seed):
    """Of questions that do not depend on each other."""
    return compute_sign_flip_p_values(first, second, np.arange(len(first)), num_permutations, seed)


def test_permutation_p_value_agrees_with_scipy():
    generator = np.random.default_rng(7)
    first, second = generator.normal(size=(40, 2)), generator.normal([0.0, 0.35], size=(40, 2))
    p_values = compute_p_values(first, second, 20_000, seed=0)
    for column in range(2):
        reference = stats.permutation_test(
            (second[:, column], first[:, column]),
            lambda a, b, axis: np.mean(a - b, axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=20_000,
            rng=1,
        )
        assert p_values[column] == pytest.approx(reference.pvalue, abs=0.015)


def test_permutation_of_conditional_means_swaps_whole_questions():
    first, second = np.array([[1.0], [np.nan], [4.0]]), np.array([[2.0], [8.0], [np.nan]])
    observed = abs((2 + 8) / 2 - (1 + 4) / 2)
    extreme = []
    for swaps in itertools.product((False, True), repeat=3):
        a, b = np.where(np.array(swaps)[:, None], (second, first), (first, second))
        one_sided = np.isnan(a).all() or np.isnan(b).all()
        extreme.append(one_sided or abs(np.nanmean(b) - np.nanmean(a)) >= observed - 1e-12)
    expected = np.mean(extreme)
    assert compute_p_values(first, second, 50_000, seed=0)[0] == pytest.approx(expected, abs=0.01)


def test_equal_policies_have_p_value_one():
    values = np.random.default_rng(0).normal(size=(30, 1))
    assert compute_p_values(values, values, 1_000, seed=0)[0] == 1.0


def test_the_smallest_p_value_counts_the_observed_order():
    assert compute_p_values(np.zeros((200, 1)), np.ones((200, 1)), 999, seed=0)[0] == 1 / 1000


@pytest.mark.parametrize(
    ("wins", "losses", "expected"), [(0, 0, 1.0), (3, 0, 0.25), (10, 2, 2 * (1 + 12 + 66) / 2**12), (5, 5, 1.0)]
)
def test_mcnemar_is_the_exact_binomial_test(wins, losses, expected):
    assert compute_mcnemar_p_value(wins, losses) == pytest.approx(expected)
    assert compute_mcnemar_p_value(losses, wins) == pytest.approx(expected)


def test_questions_of_a_cluster_are_swapped_together():
    first, second = np.zeros((7, 1)), np.array([[1.0], [1.0], [1.0], [-0.5], [2.0], [0.4], [-0.3]])
    clusters = np.array([0, 0, 1, 1, 2, 3, 3])
    observed = abs(second.mean())
    extreme = []
    for signs in itertools.product((1, -1), repeat=4):
        flipped = np.array(signs)[clusters] * second[:, 0]
        extreme.append(abs(flipped.mean()) >= observed - 1e-12)
    p_value = compute_sign_flip_p_values(first, second, clusters, 50_000, seed=0)[0]
    assert p_value == pytest.approx(np.mean(extreme), abs=0.01)
    assert p_value > compute_p_values(first, second, 50_000, seed=0)[0]


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        # By hand, after Holm (1979): 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1 and not below the one before.
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.02, 0.02, 0.9], [0.06, 0.06, 0.9]),
        ([0.6, 0.7], [1.0, 1.0]),
        ([0.3], [0.3]),
        ([], []),
    ],
)
def test_holm_corrects_as_by_hand(p_values, expected):
    assert holm(p_values) == pytest.approx(expected)


def test_holm_levels_are_those_below_which_a_p_value_is_corrected_to_one_that_holds():
    generator = np.random.default_rng(4)
    for _ in range(200):
        p_values = list(generator.beta(0.3, 2, size=6))
        for index, level in enumerate(compute_holm_levels(p_values, 0.05)):
            for own, expected in ((level * 0.999, True), (level * 1.001, False)):
                assert (holm([*p_values[:index], own, *p_values[index + 1 :]])[index] <= 0.05) is expected


def test_the_standard_error_follows_the_clusters_and_not_the_questions():
    """Questions of which each stands five times tell no more than once."""
    values = np.random.default_rng(2).normal(size=(30, 1))
    samples = bootstrap_means(np.repeat(values, 5, axis=0), np.repeat(np.arange(30), 5), 20_000, 0)
    [error] = compute_standard_errors(samples, 30)
    assert error == pytest.approx(stats.sem(values[:, 0]), rel=0.02)


def test_no_error_is_known_without_differences_without_values_or_with_one_cluster():
    samples = np.array([[0.5, 1.0, np.nan], [0.5, 2.0, 1.0], [0.5, 3.0, 1.0]])
    assert np.isnan(compute_standard_errors(samples, 10)).tolist() == [True, False, True]
    assert np.isnan(compute_standard_errors(samples, 1)).all()


@pytest.mark.parametrize("level", [0.05, 0.0125])
def test_a_test_finds_the_detectable_difference_in_four_of_five_cases(level):
    """By the noncentral t distribution, which is the power of the t-test."""
    found = compute_detectable_difference(0.02, 60, level)
    assert stats.nct.sf(stats.t.ppf(1 - level / 2, 59), 59, found / 0.02) == pytest.approx(0.8, abs=0.005)


def test_as_many_questions_as_are_needed_make_the_difference_detectable():
    """In new questions with gains of the same mean and spread, as a simulation has it."""
    generator = np.random.default_rng(8)
    seen = compute_detectable_difference(1 / np.sqrt(50), 50, 0.05)
    num_needed = compute_num_needed(0.2, seen, 50) or 0
    assert num_needed == pytest.approx(((1.96 + 0.8416) / 0.2) ** 2, rel=0.06)  # Lachin (1981), by the normal distribution
    samples = generator.normal(0.2, 1.0, size=(4_000, num_needed))
    statistics = samples.mean(axis=1) / stats.sem(samples, axis=1)
    assert np.mean(np.abs(statistics) > stats.t.ppf(0.975, num_needed - 1)) == pytest.approx(0.8, abs=0.04)


def test_no_number_of_questions_is_needed_for_nothing_or_for_what_is_detectable_already():
    assert compute_num_needed(0.0, 0.1, 50) is None
    assert compute_num_needed(-0.2, 0.1, 50) is None
