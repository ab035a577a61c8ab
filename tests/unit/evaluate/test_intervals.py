import itertools
import math

import numpy as np
import pytest
from scipy import stats

from drag_ray.evaluate.intervals import (
    bootstrap_means,
    compute_interval,
    compute_mcnemar_p_value,
    compute_means,
    compute_sign_flip_p_values,
)


def test_means_leave_out_what_does_not_apply():
    values = np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]])
    np.testing.assert_equal(compute_means(values), [2.0, 5.0, np.nan])


def test_bootstrap_interval_agrees_with_scipy():
    values = np.random.default_rng(1).exponential(size=(120, 1))
    low, high = compute_interval(bootstrap_means(values, 10_000, seed=0)[:, 0], 0.95) or (0, 0)
    reference = stats.bootstrap((values[:, 0],), np.mean, n_resamples=10_000, method="percentile", rng=2)
    width = reference.confidence_interval.high - reference.confidence_interval.low
    assert low == pytest.approx(reference.confidence_interval.low, abs=0.03 * width)
    assert high == pytest.approx(reference.confidence_interval.high, abs=0.03 * width)


def test_paired_difference_interval_agrees_with_scipy():
    generator = np.random.default_rng(4)
    first = generator.normal(size=(80, 1))
    second = first + generator.normal(0.2, 0.3, size=(80, 1))
    samples = bootstrap_means(second, 10_000, seed=0) - bootstrap_means(first, 10_000, seed=0)
    low, high = compute_interval(samples[:, 0], 0.95) or (0, 0)

    def mean_difference(a, b, axis):
        return np.mean(b, axis=axis) - np.mean(a, axis=axis)

    reference = stats.bootstrap(
        (first[:, 0], second[:, 0]), mean_difference, n_resamples=10_000, method="percentile", paired=True, rng=2
    ).confidence_interval
    assert (low, high) == pytest.approx((reference.low, reference.high), abs=0.03 * (reference.high - reference.low))


def test_bootstrap_of_a_conditional_mean_resamples_questions():
    values = np.array([[0.0], [1.0], [np.nan]])
    samples = bootstrap_means(values, 20_000, seed=0)[:, 0]
    # Of 27 draws of three questions one has no value at all.
    assert np.mean(np.isnan(samples)) == pytest.approx(1 / 27, abs=0.005)
    assert compute_interval(samples, 0.95) == (0.0, 1.0)


def test_bootstrap_is_repeatable_and_follows_the_seed():
    values = np.random.default_rng(0).normal(size=(20, 2))
    assert np.array_equal(bootstrap_means(values, 100, seed=3), bootstrap_means(values, 100, seed=3))
    assert not np.array_equal(bootstrap_means(values, 100, seed=3), bootstrap_means(values, 100, seed=4))


def test_work_in_chunks_gives_the_same_draws(monkeypatch):
    values = np.random.default_rng(0).normal(size=(20, 2))
    whole = bootstrap_means(values, 101, seed=0), compute_sign_flip_p_values(values, values[::-1], 101, seed=0)
    monkeypatch.setattr("drag_ray.evaluate.intervals._CHUNK_CELLS", 200)
    np.testing.assert_allclose(bootstrap_means(values, 101, seed=0), whole[0])
    np.testing.assert_array_equal(compute_sign_flip_p_values(values, values[::-1], 101, seed=0), whole[1])


def test_interval_without_any_value_is_none():
    assert compute_interval(np.full(10, math.nan), 0.95) is None


def test_permutation_p_value_agrees_with_scipy():
    generator = np.random.default_rng(7)
    first, second = generator.normal(size=(40, 2)), generator.normal([0.0, 0.35], size=(40, 2))
    p_values = compute_sign_flip_p_values(first, second, 20_000, seed=0)
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
    assert compute_sign_flip_p_values(first, second, 50_000, seed=0)[0] == pytest.approx(exact, abs=0.01)


def test_permutation_of_conditional_means_swaps_whole_questions():
    first, second = np.array([[1.0], [np.nan], [4.0]]), np.array([[2.0], [8.0], [np.nan]])
    observed = abs((2 + 8) / 2 - (1 + 4) / 2)
    extreme = []
    for swaps in itertools.product((False, True), repeat=3):
        a, b = np.where(np.array(swaps)[:, None], (second, first), (first, second))
        one_sided = np.isnan(a).all() or np.isnan(b).all()
        extreme.append(one_sided or abs(np.nanmean(b) - np.nanmean(a)) >= observed - 1e-12)
    expected = np.mean(extreme)
    assert compute_sign_flip_p_values(first, second, 50_000, seed=0)[0] == pytest.approx(expected, abs=0.01)


def test_equal_policies_have_p_value_one():
    values = np.random.default_rng(0).normal(size=(30, 1))
    assert compute_sign_flip_p_values(values, values, 1_000, seed=0)[0] == 1.0


def test_the_smallest_p_value_counts_the_observed_order():
    assert compute_sign_flip_p_values(np.zeros((200, 1)), np.ones((200, 1)), 999, seed=0)[0] == 1 / 1000


@pytest.mark.parametrize(
    ("wins", "losses", "expected"), [(0, 0, 1.0), (3, 0, 0.25), (10, 2, 2 * (1 + 12 + 66) / 2**12), (5, 5, 1.0)]
)
def test_mcnemar_is_the_exact_binomial_test(wins, losses, expected):
    assert compute_mcnemar_p_value(wins, losses) == pytest.approx(expected)
    assert compute_mcnemar_p_value(losses, wins) == pytest.approx(expected)
