import itertools
import math
import time

import numpy as np
import pytest
from factories import build_question, build_trajectory
from scipy import stats

from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.statistics.intervals import (
    bootstrap_means,
    compute_cluster_sizes,
    compute_clusters,
    compute_interval,
    compute_means,
    compute_sign_flip_p_values,
)
from drag_ray.types import Evidence


def bootstrap(values, num_resamples, seed):
    """Of questions that do not depend on each other."""
    return bootstrap_means(values, np.arange(len(values)), num_resamples, seed)


def test_means_leave_out_what_does_not_apply():
    values = np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]])
    np.testing.assert_equal(compute_means(values), [2.0, 5.0, np.nan])


def test_paired_difference_interval_agrees_with_scipy():
    generator = np.random.default_rng(4)
    first = generator.normal(size=(80, 1))
    second = first + generator.normal(0.2, 0.3, size=(80, 1))
    samples = bootstrap(second, 10_000, seed=0) - bootstrap(first, 10_000, seed=0)
    low, high = compute_interval(samples[:, 0], 0.95) or (0, 0)

    def mean_difference(a, b, axis):
        return np.mean(b, axis=axis) - np.mean(a, axis=axis)

    reference = stats.bootstrap(
        (first[:, 0], second[:, 0]), mean_difference, n_resamples=10_000, method="percentile", paired=True, rng=2
    ).confidence_interval
    assert (low, high) == pytest.approx((reference.low, reference.high), abs=0.03 * (reference.high - reference.low))


def test_bootstrap_of_a_conditional_mean_resamples_questions():
    values = np.array([[0.0], [1.0], [np.nan]])
    samples = bootstrap(values, 20_000, seed=0)[:, 0]
    # Of 27 draws of three questions one has no value at all.
    assert np.mean(np.isnan(samples)) == pytest.approx(1 / 27, abs=0.005)
    assert compute_interval(samples, 0.95) == (0.0, 1.0)


def test_work_in_chunks_gives_the_same_draws(monkeypatch):
    values = np.random.default_rng(0).normal(size=(20, 2))
    whole = bootstrap(values, 101, seed=0), compute_sign_flip_p_values(values, values[::-1], np.arange(20), 101, seed=0)
    monkeypatch.setattr("drag_ray.evaluate.statistics.intervals._CHUNK_CELLS", 200)
    np.testing.assert_allclose(bootstrap(values, 101, seed=0), whole[0])
    np.testing.assert_array_equal(compute_sign_flip_p_values(values, values[::-1], np.arange(20), 101, seed=0), whole[1])


def test_interval_without_any_value_is_none():
    assert compute_interval(np.full(10, math.nan), 0.95) is None


def test_clusters_of_one_question_are_the_plain_bootstrap():
    values = np.random.default_rng(0).normal(size=(20, 2))
    drawn = np.random.default_rng(3).integers(0, 20, size=(100, 20))
    np.testing.assert_allclose(bootstrap(values, 100, seed=3), values[drawn].mean(axis=1))


def test_questions_of_a_cluster_are_drawn_together():
    values, clusters = np.array([[1.0], [2.0], [10.0], [np.nan], [7.0]]), np.array([0, 0, 1, 1, 2])
    members = [[1.0, 2.0], [10.0], [7.0]]
    draws = itertools.product(members, repeat=3)
    exact = [np.mean(list(itertools.chain.from_iterable(draw))) for draw in draws]
    samples = bootstrap_means(values, clusters, 27_000, seed=0)[:, 0]
    assert set(np.round(samples, 9)) == set(np.round(exact, 9))
    assert samples.mean() == pytest.approx(np.mean(exact), abs=0.05)
    assert samples.std() == pytest.approx(np.std(exact), abs=0.05)


def test_thousands_of_questions_take_seconds():
    """2,400 questions, 8 policies of 25 measures; a tenth of the usual draws, in a tenth of a few seconds."""
    values = np.random.default_rng(0).random((2_400, 200)).round()
    started = time.process_time()
    bootstrap(values, 1_000, seed=0)
    compute_sign_flip_p_values(values, values[::-1], np.arange(2_400), 1_000, seed=0)
    assert time.process_time() - started < 4.0


def cluster(*places):
    """The clusters of questions with these (file, group)."""
    questions = [
        build_question(id=f"q{number}", evidence=(Evidence(file, 1), Evidence("other.pdf", 2)), group=group)
        for number, (file, group) in enumerate(places)
    ]
    rollouts = [build_trajectory(question=questions[0])]  # the others have none: they are in their clusters all the same
    return compute_clusters(compute_results({"base": rollouts}, questions)["base"])


def test_questions_of_one_document_are_a_cluster_by_their_first_page():
    assert cluster(("a", ""), ("b", ""), ("a", ""), ("c", ""), ("b", "")).tolist() == [0, 1, 0, 2, 1]


def test_documents_of_one_group_are_a_cluster():
    assert cluster(("a", "x"), ("b", "x"), ("c", "y"), ("d", ""), ("e", "")).tolist() == [0, 0, 1, 2, 3]


def test_groups_that_cross_documents_do_not_chain_them():
    # Group x is in a and in b, of which both hold other groups too.
    assert cluster(("a", "x"), ("b", "x"), ("a", "y"), ("b", "z"), ("c", "y")).tolist() == [0, 1, 0, 1, 2]


def test_sizes_say_how_much_the_clusters_tell():
    sizes = compute_cluster_sizes(cluster(("a", ""), ("b", ""), ("a", ""), ("a", "")))
    assert (sizes.num_clusters, sizes.largest) == (2, 3)
    assert sizes.num_effective == pytest.approx(16 / 10)


def test_questions_of_one_document_have_no_interval():
    samples = bootstrap_means(np.array([[1.0], [0.0]]), np.array([0, 0]), 100, seed=0)
    assert compute_interval(samples[:, 0], 0.95) is None
    assert compute_interval(bootstrap_means(np.array([[1.0], [0.0]]), np.array([0, 1]), 100, seed=0)[:, 0], 0.95) == (0, 1)
