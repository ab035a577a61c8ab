"""What qualifies the numbers."""

import dataclasses

from evaluation_cases import CONTEXT, build_comparison

from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.policies.question_weights import FoundWeight
from drag_ray.evaluate.report.formatting import write_settings, write_split


def join_settings(comparison: Comparison, context: ReportContext) -> str:
    return " ".join(write_settings(comparison, context))


RANKS = {"raw": [2] * 30 + [None] * 30, "base": [None] * 60, "tuned": [1] * 60}


def test_questions_on_documents_of_their_own_are_tested_exactly() -> None:
    caption = join_settings(build_comparison(RANKS), CONTEXT)
    assert "95% bootstrap intervals (500 resamples, seed 0) over questions, of which no two share a document." in caption
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
    assert asked.endswith("Evaluations of this run that asked them before: 4; what was chosen by these is flattered.")
    validation = write_split(dataclasses.replace(comparison, split="validation"), CONTEXT)
    assert validation.startswith("VALIDATION questions")
    assert validation.endswith("The test questions were not asked.")


def test_weights_that_were_found_are_named_with_the_questions_they_were_found_on() -> None:
    weights = {"base": FoundWeight(4.0, 90, {4.0: 0.5}), "tuned": FoundWeight(1.5, 90, {1.5: 0.6})}
    context = dataclasses.replace(CONTEXT, question_weights=weights)
    caption = join_settings(build_comparison({"base": [1, 2], "tuned": [1, 1]}), context)
    assert "found on 90 questions of the train part: base 4, tuned 1.5." in caption


def test_intervals_of_a_trained_policy_are_said_to_leave_another_training_out() -> None:
    said = "Intervals leave out how much another training would differ."
    assert said in join_settings(build_comparison(RANKS), CONTEXT)
    untrained = {policy: ranks for policy, ranks in RANKS.items() if policy != "tuned"}
    assert said not in join_settings(build_comparison(untrained, baseline="raw"), CONTEXT)
