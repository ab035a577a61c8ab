import itertools

import numpy as np
import pytest
from scipy import stats

from drag_ray.evaluate.significance import (
    compute_detectable_differences,
    compute_mcnemar_p_value,
    compute_sign_flip_p_values,
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


def test_permutation_p_value_is_that_of_all_sign_patterns():
    first, second = np.zeros((6, 1)), np.array([[1.0], [2.0], [0.5], [1.5], [-0.7], [0.3]])
    observed = abs(second.mean())
    exact = np.mean(
        [abs(np.mean(np.array(signs) * second[:, 0])) >= observed - 1e-12 for signs in itertools.product((1, -1), repeat=6)]
    )
    assert compute_p_values(first, second, 50_000, seed=0)[0] == pytest.approx(exact, abs=0.01)


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


def test_one_cluster_proves_nothing():
    assert compute_sign_flip_p_values(np.zeros((50, 1)), np.ones((50, 1)), np.zeros(50, dtype=int), 999, seed=0)[0] == 1.0


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


def test_a_test_finds_the_detectable_difference_in_four_of_five_cases():
    """By the noncentral t distribution, which is the power of the t-test."""
    generator = np.random.default_rng(2)
    first, second = generator.normal(size=(60, 1)), generator.normal(size=(60, 1))
    [found] = compute_detectable_differences(first, second, np.arange(60), 0.05)
    error = stats.sem((second - first)[:, 0])
    assert stats.nct.sf(stats.t.ppf(0.975, 59), 59, found / error) == pytest.approx(0.8, abs=0.005)


def test_the_detectable_difference_follows_the_clusters_and_not_the_questions():
    generator = np.random.default_rng(2)
    first, second = generator.normal(size=(30, 1)), generator.normal(size=(30, 1))
    alone = compute_detectable_differences(first, second, np.arange(30), 0.05)
    repeated_first, repeated_second = (np.repeat(array, 5, axis=0) for array in (first, second))
    together = compute_detectable_differences(repeated_first, repeated_second, np.repeat(np.arange(30), 5), 0.05)
    np.testing.assert_allclose(together, alone)


def test_nothing_is_known_of_what_would_be_detected_without_differences_or_with_one_cluster():
    zeros, mixed = np.zeros((10, 2)), np.array([[number, number % 3] for number in range(10)], dtype=np.float64)
    assert np.isnan(compute_detectable_differences(zeros, zeros, np.arange(10), 0.05)).all()
    assert np.isnan(compute_detectable_differences(zeros, mixed, np.zeros(10, dtype=int), 0.05)).all()
    mixed[3, 0] = np.nan
    assert np.isnan(compute_detectable_differences(zeros, mixed, np.arange(10), 0.05)).tolist() == [True, False]
