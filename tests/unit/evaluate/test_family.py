import pytest
from evaluation_cases import build_comparison

from drag_ray.evaluate.statistics.intervals import holm
from drag_ray.evaluate.statistics.rows import count_tests

RANKS = {"raw": [2] * 9 + [None] * 7, "base": [2] * 4 + [None] * 12, "tuned": [1] * 14 + [None, 6]}


def test_the_subject_is_tested_against_each_other_policy_on_a_few_measures_together():
    comparison = build_comparison(RANKS)
    names = ("first_hit_rate", "hit_at_1", "hit_at_10", "mrr")
    tests = [comparison.row(name).difference("tuned", reference) for name in names for reference in ("raw", "base")]
    assert [test.adjusted_p_value for test in tests] == pytest.approx(holm([test.p_value or 0 for test in tests]))
    assert count_tests(comparison.rows, comparison.top_k) == 8


def test_the_first_hit_rate_counts_once_by_whichever_name():
    comparison = build_comparison(RANKS)
    by_name, by_rank = (comparison.row(name).difference("tuned", "base") for name in ("first_hit_rate", "hit_at_3"))
    assert by_name.adjusted_p_value == by_rank.adjusted_p_value is not None


def test_other_measures_and_other_pairs_are_not_tested():
    comparison = build_comparison(RANKS)
    assert comparison.row("first_hit_rate").difference("raw", "base").adjusted_p_value is None
    for name in ("success_rate", "success_at_equal_pages", "hit_at_5", "pages_shown", "anls"):
        difference = comparison.row(name).difference("tuned", "base")
        assert difference.p_value is not None
        assert difference.adjusted_p_value is None
