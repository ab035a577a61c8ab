"""Query performance predictors, against values that were computed by hand."""

from math import log, sqrt

import pytest

from drag_ray.search.predictors import (
    compute_clarity,
    compute_coverage,
    compute_gap,
    compute_idf,
    compute_jaccard,
    compute_nqc,
    compute_rbo,
    compute_wig,
)

SCORES = [8.0, 6.0, 3.0, 3.0]  # mean 5, deviations 3 1 -2 -2, variance 18 / 4


def test_the_idf_is_that_of_bm25() -> None:
    assert compute_idf(1, 3) == pytest.approx(log(1 + 2.5 / 1.5))
    assert compute_idf(0, 3) == pytest.approx(log(8))
    assert 0 < compute_idf(3, 3) < compute_idf(2, 3)


@pytest.mark.parametrize(("rank", "gap"), [(1, 0.0), (2, 2.0), (3, 5.0), (10, 5.0)])
def test_a_gap_ends_at_a_rank_or_with_the_list(rank: int, gap: float) -> None:
    assert compute_gap(SCORES, rank) == gap


def test_nqc_is_the_deviation_by_the_collections_score() -> None:
    assert compute_nqc(SCORES, 10.0) == pytest.approx(sqrt(4.5) / 10)
    assert compute_nqc([4.0, 4.0], 10.0) == 0


def test_wig_is_the_mean_above_the_collection_by_the_root_of_the_length() -> None:
    assert compute_wig(SCORES, 4) == pytest.approx(2.5)
    assert compute_wig(SCORES, 4, collection_score=1.0) == pytest.approx(2.0)


def test_clarity_is_the_divergence_of_the_pages_words_from_the_collections() -> None:
    # The model of both pages is a 3/4, b 1/4. Of what the collection has of a and b, a quarter is a's:
    # 3/4 log2(3) + 1/4 log2(1/3) = 1/2 log2(3).
    pages = [{"a": 1, "b": 1}, {"a": 7}]
    assert compute_clarity(pages, {"a": 2, "b": 6}.__getitem__) == pytest.approx(0.7924812503605781)
    assert compute_clarity([*pages, {}], {"a": 2, "b": 6}.__getitem__) == pytest.approx(0.7924812503605781)


def test_pages_like_the_collection_have_no_clarity() -> None:
    assert compute_clarity([{"a": 3, "b": 1}], {"a": 30, "b": 10}.__getitem__) == pytest.approx(0)


def test_coverage_is_the_share_of_the_terms_that_a_page_holds() -> None:
    assert compute_coverage(["a", "b", "c"], {"a": 2, "c": 1, "d": 5}) == pytest.approx(2 / 3)


def test_rbo_weighs_the_first_ranks_most() -> None:
    assert compute_rbo("abc", "abc") == pytest.approx(1)
    assert compute_rbo("abc", "xyz") == 0
    # Shares 0, 1 of two depths with weights 1 and .5; then 1, 1/2.
    assert compute_rbo("ab", "ba", p=0.5) == pytest.approx(1 / 3)
    assert compute_rbo("ab", "ax", p=0.5) == pytest.approx((1 + 0.25) / 1.5)
    assert compute_rbo("a", "ab", p=0.5) == pytest.approx((1 + 0.25) / 1.5)


def test_jaccard_looks_at_sets() -> None:
    assert compute_jaccard("abc", "bca", 3) == 1
    assert compute_jaccard("abcd", "axyz", 2) == pytest.approx(1 / 3)


def test_empty_lists_have_values_too() -> None:
    assert compute_gap([], 2) == compute_nqc([], 1.0) == compute_wig([], 3) == compute_clarity([], int) == 0
    assert compute_coverage([], {"a": 1}) == compute_coverage(["a"], {}) == 0
    assert compute_wig([1.0], 0) == compute_nqc([1.0, 2.0], 0.0) == 0
    assert compute_rbo([], []) == compute_jaccard([], [], 3) == 1
    assert compute_rbo("a", "") == compute_jaccard("a", "", 3) == 0
