import pytest
from evaluation_cases import build_comparison

from drag_ray.evaluate.measure import Unit
from drag_ray.evaluate.report.formatting import write_interval, write_num_needed, write_number, write_p_value, write_test
from drag_ray.evaluate.statistics.rows import Metric


@pytest.mark.parametrize(
    ("value", "unit", "signed", "expected"),
    [
        (0.1644, Unit.SHARE, False, "16.4"),
        (0.1644, Unit.SHARE, True, "+16.4"),
        (-0.0001, Unit.SHARE, True, "+0.0"),
        (0.98765, Unit.SCORE, False, "0.988"),
        (1.239, Unit.COUNT, False, "1.24"),
        (None, Unit.COUNT, True, "-"),
    ],
)
def test_numbers_are_written_by_unit(value, unit, signed, expected):
    assert write_number(value, unit, signed=signed) == expected


def test_intervals_are_written_as_ranges_and_left_out_when_absent():
    assert write_interval(Metric(0.5, 0.25, 0.75, 4), Unit.SHARE) == "25.0..75.0"
    assert write_interval(Metric(None, None, None, 0), Unit.SHARE) == ""


@pytest.mark.parametrize(
    ("p_value", "expected"),
    [(1.0, "p=1"), (0.0123, "p=0.012"), (0.0001, "p=0.0001"), (0.00009, "p<0.0001"), (None, "")],
)
def test_p_values_are_never_zero(p_value, expected):
    assert write_p_value(p_value) == expected


def test_the_least_p_value_that_permutations_can_give_is_written_as_an_upper_bound():
    comparison = build_comparison({"base": [None] * 60, "tuned": [1] * 60}, num_resamples=1000, num_documents=30)
    difference = comparison.row("mrr").difference("tuned", "base")
    assert difference.p_value == 1 / 1001
    assert write_test(difference) == f"p≤{difference.adjusted_p_value:.2g}"
    even = build_comparison({"base": [1, None] * 30, "tuned": [None, 1] * 30}, num_resamples=1000, num_documents=30)
    assert write_test(even.row("mrr").difference("tuned", "base")) == "p=1"
    exact = build_comparison({"base": [None] * 60, "tuned": [1] * 60}, num_resamples=1000)
    assert write_test(exact.row("hit_at_1").difference("tuned", "base")) == "p<0.0001"


@pytest.mark.parametrize(
    ("num_needed", "expected"), [(7, "7"), (99, "99"), (3_301, "3,400"), (3_400, "3,400"), (995_001, "1,000,000")]
)
def test_questions_that_are_needed_are_rounded_up_to_two_digits(num_needed, expected):
    assert write_num_needed(num_needed) == f"about {expected}"
