import dataclasses

import pytest
from evaluation_cases import CONTEXT, build_comparison, build_searching
from scipy import stats

from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.deployment import Latency
from drag_ray.evaluate.measure import Unit
from drag_ray.evaluate.policies.retriever_rescoring import FoundWeight
from drag_ray.evaluate.report.context import ReportContext
from drag_ray.evaluate.report.formatting import (
    write_finding,
    write_gain,
    write_interval,
    write_num_needed,
    write_number,
    write_p_value,
    write_settings,
    write_split,
    write_test,
    write_verdict,
)
from drag_ray.evaluate.statistics.differences import Finding
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


def join_settings(comparison: Comparison, context: ReportContext) -> str:
    return " ".join(write_settings(comparison, context))


RANKS = {"raw": [2] * 30 + [None] * 30, "base": [None] * 60, "tuned": [1] * 60}


def test_questions_on_documents_of_their_own_are_tested_exactly() -> None:
    caption = join_settings(build_comparison(RANKS), CONTEXT)
    assert "95% bootstrap intervals (500 resamples, seed 0) over questions from different documents." in caption
    assert "exact McNemar for shares, sign flips for the rest" in caption


def test_the_family_of_tests_is_named_and_counted() -> None:
    caption = join_settings(build_comparison(RANKS), CONTEXT)
    assert "Holm over 8 tests of tuned against base, raw on First-hit rate, Hit@1, Hit@3, Hit@10, MRR; raw ones" in caption


def test_clusters_are_counted_and_few_ones_warned_of() -> None:
    many = join_settings(build_comparison(RANKS, num_documents=30), CONTEXT)
    assert "over 30 clusters of questions on the same documents, the largest of 2, together worth 30 of equal size." in many
    assert "sign flips of whole clusters" in many
    assert "WARNING" not in many
    assert "WARNING: with so few clusters" in join_settings(build_comparison(RANKS, num_documents=6), CONTEXT)


def test_the_split_is_said_loudly() -> None:
    comparison = build_comparison(RANKS)
    assert write_split(comparison, CONTEXT).startswith("TEST questions")
    asked = write_split(comparison, dataclasses.replace(CONTEXT, num_exposures=4))
    assert asked.endswith("asked them 4 times; choices made on these are biased in their favour.")
    validation = write_split(dataclasses.replace(comparison, split="validation"), CONTEXT)
    assert validation.startswith("VALIDATION questions")
    assert validation.endswith("The test questions were not used.")


def test_weights_that_were_found_are_named_with_the_questions_they_were_found_on() -> None:
    weights = {"base": FoundWeight(4.0, 90, {4.0: 0.5}), "tuned": FoundWeight(1.5, 90, {1.5: 0.6})}
    context = dataclasses.replace(CONTEXT, question_weights=weights)
    caption = join_settings(build_comparison({"base": [1, 2], "tuned": [1, 1]}), context)
    assert "found on 90 questions of the train part: base 4, tuned 1.5." in caption


def test_intervals_of_a_trained_policy_are_said_to_leave_another_training_out() -> None:
    said = "Intervals do not include the variation between trainings."
    assert said in join_settings(build_comparison(RANKS), CONTEXT)
    untrained = {policy: ranks for policy, ranks in RANKS.items() if policy != "tuned"}
    assert said not in join_settings(build_comparison(untrained, baseline="raw"), CONTEXT)


UNSURE = "No significant difference between tuned and base"


@pytest.mark.parametrize(
    ("num_before", "num_after", "size", "said", "amount", "p_value"),
    [  # of the exact test for one of four tests; then that of MRR, which is smaller, times four
        (0, 10, 40, "tuned finds significantly more than base: 10 more first hits over 40", "+25.0", "p=0.0078)."),
        (0, 3, 40, f"{UNSURE}: 3 more first hits over 40", "+7.5", "p=0.89); a true difference of "),
        (20, 0, 20, "tuned finds significantly less than base: 20 fewer first hits over 20", "-100.0", "p<0.0001)."),
        (1, 1, 2, f"{UNSURE}: as many first hits over 2", "+0.0", "p=1)."),
    ],
)
def test_gains_and_losses_are_said_in_counts_and_points_and_as_sure_as_they_are(
    num_before, num_after, size, said, amount, p_value
):
    ranks = {name: [1] * hits + [None] * (size - hits) for name, hits in (("base", num_before), ("tuned", num_after))}
    [sentence] = write_verdict(build_comparison(ranks))
    assert sentence.startswith(f"{said} test questions ({amount} points, 95% interval ")
    assert p_value in sentence


RERANKED = {
    "base": [3] * 40,
    "question": [4] * 40,
    "hybrid": [2] * 30 + [1] * 10,
    "rerank": [1] * 38 + [2] * 2,
    "tuned": [3] * 40,
}


def test_what_to_deploy_is_said_first_with_its_cost_and_how_sure_it_is():
    latency = Latency(median_ms=142.4, num_questions=30, num_pages=20, device="2 CPU cores", gpu_gib=0.0)
    comparison = build_comparison({**RERANKED, "tuned+rerank": [1] * 40}, subject="tuned", latencies={"rerank": latency})
    assert comparison.deployment
    assert (comparison.deployment.candidate, comparison.deployment.best_untrained) == ("rerank", "hybrid")
    tests = [d.adjusted_p_value for row in comparison.deployment.rows for d in row.differences]
    assert len(tests) == 4  # two measures, two references: no other difference makes them less sure
    deploy, compared = write_verdict(comparison)
    assert deploy == (
        "Deploy rerank: Hit@1 95.0 %, MRR 0.975; a question takes 142 ms (median of 30, one at a time) with 20 pages read on "
        "2 CPU cores."
    )
    assert compared.startswith("It is significantly above question by Hit@1 % (+95.0 [")
    assert "; and significantly above hybrid, the best without a trained neural model, by Hit@1 % (+70" in compared
    [subject] = write_gain(comparison)
    assert subject.startswith("No significant difference between tuned and base")


def test_a_reranker_stands_beside_what_it_was_before_training():
    start_ranks = {f"q{place}": 1 if place < 10 else 2 for place in range(20)}
    comparison = build_comparison(RERANKED, subject="tuned", start_ranks=start_ranks)
    assert comparison.deployment
    assert [row.metrics["start"].n for row in comparison.deployment.start] == [20, 20]
    *_, start = write_verdict(comparison)
    assert start.startswith(
        "The vectors of the model that rerank was trained from order the same pages of 20 of these questions with Hit@1 50.0 % "
        "and MRR 0.750; rerank is significantly above them by Hit@1 % (+50.0 ["
    )
    assert len(write_verdict(build_comparison(RERANKED, subject="tuned"))) == 2


def test_what_is_not_significantly_better_than_the_untrained_is_not_deployed():
    ranks = {**RERANKED, "rerank": [2] * 29 + [1] * 11}
    latency = Latency(median_ms=142.4, num_questions=30, num_pages=20, device="2 CPU cores", gpu_gib=0.0)
    deploy, unsure = write_verdict(build_comparison(ranks, latencies={"rerank": latency}))
    assert deploy == "Deploy hybrid, the best without a trained neural model: Hit@1 25.0 %, MRR 0.625."
    assert unsure.startswith("The candidate rerank is significantly above question by Hit@1 % (+27.5 [")
    assert "; and not significantly different from hybrid by Hit@1 % (+2.5 [" in unsure
    assert ", would need about " in unsure


def test_measures_that_come_to_different_things_are_told_apart():
    ranks = {"base": [3] * 40, "question": [2] * 40, "tuned": [1] * 14 + [4] * 26}
    _, found = write_verdict(build_comparison(ranks))
    assert found.startswith("It is significantly above question, the best without a trained neural model, by Hit@1 % (+35.0 [")
    assert "and not significantly different from it by MRR (+0.0" in found


def test_vectors_of_a_trained_model_are_a_candidate_and_no_reference():
    ranks = {**RERANKED, "dense": [1] * 39 + [2], "index_dense": [3] * 40, "features+hybrid": [1] * 40}
    latency = Latency(median_ms=9.6, num_questions=30, num_pages=0, device="2 CPU cores", gpu_gib=0.0)
    comparison = build_comparison(ranks, retrievers=["dense", "hybrid"], latencies={"dense": latency})
    deployment = comparison.deployment
    assert deployment
    assert deployment.candidates == ("hybrid", "rerank", "dense")
    assert (deployment.policy, deployment.best_untrained) == ("dense", "base")
    alone = build_comparison({name: ranks[name] for name in ("base", "question", "dense", "tuned")}, retrievers=["dense"])
    assert alone.deployment
    found = [[d.adjusted_p_value for row in one.rows for d in row.differences] for one in (deployment, alone.deployment)]
    assert [len(p_values) for p_values in found] == [4, 4]
    assert sum(p or 0 for p in found[0]) > sum(p or 0 for p in found[1])  # corrected for twelve tests, and for four
    deploy, compared = write_verdict(comparison)
    assert deploy == (
        "Deploy dense: Hit@1 97.5 %, MRR 0.988; a question takes 10 ms (median of 30, one at a time) on 2 CPU cores."
    )
    assert compared.startswith("It is significantly above question by Hit@1 % (")
    untrained = build_comparison(ranks).deployment
    assert untrained
    assert (untrained.candidates, untrained.best_untrained) == (("rerank",), "features+hybrid")


def test_without_a_reranker_the_trained_writer_is_the_candidate_and_what_is_trained_is_no_reference():
    ranks = {"base": [2] * 40, "question": [3] * 40, "dpo": [1] * 40, "dpo+hybrid": [1] * 40, "tuned": [1] * 40}
    deployment = build_comparison(ranks, trained=["dpo"]).deployment
    assert deployment
    assert (deployment.candidate, deployment.best_untrained, deployment.policy) == ("tuned", "base", "tuned")


def test_what_would_have_been_found_and_what_is_needed_is_said_where_nothing_was():
    comparison = build_comparison({"base": [None] * 40, "tuned": [1] * 3 + [None] * 37}, num_resamples=20_000)
    [sentence] = write_verdict(comparison)
    difference = comparison.row("first_hit_rate").differences[0]
    # Holm takes a quarter of the level, for three other tests that do not hold; the error is that of three ones among forty.
    expected = (stats.t.ppf(1 - 0.0125 / 2, 39) + stats.t.ppf(0.8, 39)) * stats.sem([1] * 3 + [0] * 37)
    assert difference.detectable == pytest.approx(expected, rel=0.03)
    assert difference.num_needed == pytest.approx(40 * (expected / 0.075) ** 2, rel=0.06)
    needed = write_num_needed(difference.num_needed or 0)
    assert sentence.endswith(
        f" points would be detected with 80% power, one as small as the observed one with {needed} questions."
    )
    assert write_finding(difference, comparison.criterion) == f"not significant: would need {needed} questions"


def test_a_gain_is_not_sure_before_it_is_corrected():
    row = build_comparison({"base": [None] * 40, "tuned": [1] * 7 + [None] * 33}).row("first_hit_rate")
    difference = row.difference("tuned", "base")
    assert (difference.p_value or 1) < 0.05 < (difference.adjusted_p_value or 0)
    assert difference.low is not None
    assert difference.low > 0
    assert difference.finding is Finding.UNSURE


def test_all_searches_are_compared_at_equal_pages_and_the_pages_are_said():
    sentences = write_gain(build_searching("question", baseline="question", subject="base"))
    assert sentences[-1] == (
        "With all its searches base shows 5.00 pages a question and finds the evidence of 66.7 %; question with as many pages of "
        "66.7 % (+0.0 points, 95% interval +0.0..+0.0, raw p=1)."
    )
