from dataclasses import replace

import pytest
from evaluation_cases import build_comparison, build_searching
from scipy import stats

from drag_ray.evaluate.report.formatting import write_finding, write_num_needed, write_verdict
from drag_ray.evaluate.statistics.differences import Finding


def test_a_clear_gain_is_said_in_counts_and_points():
    [sentence] = write_verdict(build_comparison({"base": [None] * 40, "tuned": [1] * 10 + [None] * 30}))
    assert sentence.startswith(
        "tuned finds more than base, surely: 10 more first hits over 40 test questions (+25.0 points, 95% interval +"
    )
    assert sentence.endswith("p=0.0078).")  # 0.00195 of the exact test, for one of four tests


def test_a_gain_that_chance_can_make_is_no_gain():
    [sentence] = write_verdict(build_comparison({"base": [None] * 40, "tuned": [1] * 3 + [None] * 37}))
    assert sentence.startswith(
        "Cannot tell whether tuned finds more than base: 3 more first hits over 40 test questions (+7.5 points"
    )
    assert "p=0.89" in sentence  # that of MRR, which is smaller, times four
    assert "chance" in sentence


def test_a_loss_is_said_as_plainly():
    [sentence] = write_verdict(build_comparison({"base": [1] * 20, "tuned": [None] * 20}))
    assert sentence.startswith("tuned finds less than base, surely: 20 fewer first hits over 20 test questions (-100.0 points")


def test_no_difference_is_said():
    [sentence] = write_verdict(build_comparison({"base": [1, None], "tuned": [1, None]}))
    assert sentence.startswith(
        "Cannot tell whether tuned finds more than base: as many first hits over 2 test questions (+0.0 points"
    )


def test_the_subject_is_judged_against_every_other_policy():
    sentences = write_verdict(build_comparison({"base": [None] * 20, "raw question": [1] * 20, "tuned": [1] * 19 + [None]}))
    assert "than base" in sentences[0]
    assert sentences[1].startswith(
        "Cannot tell whether tuned finds more than raw question: 1 fewer first hit over 20 test questions"
    )


def test_the_best_without_a_language_model_is_named_beside_the_subject():
    ranks = {"base": [None] * 4, "question": [1, None, None, None], "features": [1, 1, 1, None], "tuned": [1, 1, None, None]}
    sentences = write_verdict(build_comparison({**ranks, "tuned+hybrid": [1] * 4}))
    assert sentences[-1] == "Best without a language model is features: first-hit rate 75.0 %, where tuned+hybrid has 100.0 %."
    assert not any("without a language model" in one for one in write_verdict(build_comparison({"base": [1], "question": [1]})))


def test_baselines_that_are_not_measured_are_not_the_best():
    comparison = build_comparison({"base": [None], "question": [1], "features": [1], "tuned": [1]})
    metrics = {name: replace(one, value=None) if name != "tuned" else one for name, one in comparison.primary.metrics.items()}
    rows = tuple(replace(row, metrics=metrics) if row == comparison.primary else row for row in comparison.rows)
    assert not any("without a language model" in one for one in write_verdict(replace(comparison, rows=rows)))


def test_what_would_have_been_found_and_what_is_needed_is_said_where_nothing_was():
    comparison = build_comparison({"base": [None] * 40, "tuned": [1] * 3 + [None] * 37}, num_resamples=20_000)
    [sentence] = write_verdict(comparison)
    difference = comparison.row("first_hit_rate").differences[0]
    # Holm takes a quarter of the level, for three other tests that do not hold; the error is that of three ones among forty.
    expected = (stats.t.ppf(1 - 0.0125 / 2, 39) + stats.t.ppf(0.8, 39)) * stats.sem([1] * 3 + [0] * 37)
    assert difference.detectable == pytest.approx(expected, rel=0.03)
    assert difference.num_needed == pytest.approx(40 * (expected / 0.075) ** 2, rel=0.06)
    needed = write_num_needed(difference.num_needed or 0)
    assert sentence.endswith(f" points would be found with 80% power, one as small as that seen with {needed} questions.")
    assert write_finding(difference, comparison.criterion) == f"cannot tell: would need {needed} questions"


def test_a_gain_is_not_sure_before_it_is_corrected():
    row = build_comparison({"base": [None] * 40, "tuned": [1] * 7 + [None] * 33}).row("first_hit_rate")
    difference = row.difference("tuned", "base")
    assert (difference.p_value or 1) < 0.05 < (difference.adjusted_p_value or 0)
    assert difference.low is not None
    assert difference.low > 0
    assert difference.finding is Finding.UNSURE


def test_all_searches_are_compared_at_equal_pages_and_the_pages_are_said():
    sentences = write_verdict(build_searching("question", baseline="question", subject="base"))
    assert sentences[1] == (
        "With all its searches base shows 5.00 pages a question and finds the evidence of 66.7 %; question with as many pages of "
        "66.7 % (+0.0 points, 95% interval +0.0..+0.0, raw p=1)."
    )
