import dataclasses
import json

import pytest
from evaluation_cases import build_comparison, build_questions, build_rollouts, build_searching
from factories import change

from drag_ray.errors import DataError
from drag_ray.evaluate.comparison import compare, compute_headroom
from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.statistics.intervals import holm
from drag_ray.evaluate.statistics.rows import count_tests

RANKS = {"base": [1, None, 5, None], "raw": [2, 2, None, None], "tuned": [1, 1, 2, 8]}


def get_value(comparison, measure, policy):
    return comparison.row(measure).metrics[policy].value


@pytest.mark.parametrize(
    ("measure", "base", "tuned"),
    [
        ("first_hit_rate", 1 / 4, 3 / 4),
        ("success_rate", 1 / 4, 3 / 4),
        ("hit_at_1", 1 / 4, 2 / 4),
        ("hit_at_5", 2 / 4, 3 / 4),
        ("hit_at_10", 2 / 4, 4 / 4),
        ("mrr", (1 + 1 / 5) / 4, (1 + 1 + 1 / 2 + 1 / 8) / 4),
        ("avg_iterations", 2.0, 2.0),
        ("iterations_to_success", 1.0, 1.0),
        ("num_completion_tokens", 4.0, 4.0),
        ("anls", 1.0, 1.0),
        ("anls_accuracy", 1.0, 1.0),
    ],
)
def test_metrics_are_those_computed_by_hand(measure, base, tuned):
    comparison = build_comparison(RANKS)
    assert get_value(comparison, measure, "base") == pytest.approx(base)
    assert get_value(comparison, measure, "tuned") == pytest.approx(tuned)


def test_a_measure_that_applies_to_no_question_has_no_value():
    comparison = build_comparison({"base": [None, None], "tuned": [1, None]})
    metric = comparison.row("iterations_to_success").metrics["base"]
    assert (metric.value, metric.low, metric.high, metric.n) == (None, None, None, 0)
    difference = comparison.row("iterations_to_success").difference("tuned", "base")
    assert (difference.value, difference.low, difference.p_value) == (None, None, None)


def test_every_policy_is_compared_with_the_baseline_and_the_subject_with_all():
    pairs = [(d.policy, d.reference) for d in build_comparison(RANKS).rows[0].differences]
    assert pairs == [("raw", "base"), ("tuned", "base"), ("tuned", "raw")]


def test_differences_count_questions_and_use_the_exact_test_for_shares():
    row = build_comparison(RANKS).row("first_hit_rate")
    difference = row.difference("tuned", "base")
    assert (difference.value, difference.num_higher, difference.num_lower) == (0.5, 2, 0)
    assert (difference.test, difference.p_value) == ("mcnemar", 0.5)
    assert build_comparison(RANKS).row("mrr").difference("tuned", "base").test == "sign_flip"


@pytest.mark.parametrize(("baseline", "subject"), [("bas", ""), ("base", "tunde"), ("base", "base")])
def test_wrong_policy_names_are_refused(baseline, subject):
    results = compute_results(build_rollouts(RANKS), build_questions(4))
    with pytest.raises(DataError, match=r"policy|policies"):
        compare(results, baseline, subject)


def test_hits_beyond_the_depth_are_not_reported():
    rollouts = build_rollouts({"base": [1, 2], "tuned": [1, 1]})
    rollouts = {name: [dataclasses.replace(t, depth=4) for t in some] for name, some in rollouts.items()}
    results = compute_results(rollouts, build_questions(2))
    names = {row.name for row in compare(results, "base", num_resamples=50).rows}
    assert {"hit_at_1", "hit_at_3"} <= names
    assert not names & {"hit_at_5", "hit_at_10"}


def test_measures_of_a_model_do_not_apply_to_a_policy_without_one():
    rollouts = build_rollouts({"base": [1, 2], "tuned": [1, 1]})
    silent = [
        dataclasses.replace(t, turns=tuple(change(turn, num_completion_tokens=0) for turn in t.turns)) for t in rollouts["base"]
    ]
    questions = build_questions(2)
    comparison = compare(compute_results({**rollouts, "raw": silent}, questions), "base", "tuned", num_resamples=50)
    assert get_value(comparison, "num_completion_tokens", "raw") is None
    assert get_value(comparison, "anls", "raw") is None
    assert get_value(comparison, "mrr", "raw") == 0.75


def test_incidents_are_counted_and_failed_rollouts_stay_in_the_average():
    rollouts = build_rollouts({"base": [1, 1, 1, 1], "tuned": [1, 1, 1, 1]})
    failed = dataclasses.replace(rollouts["tuned"][0], error="engine stopped")
    silent = dataclasses.replace(rollouts["tuned"][1], turns=())
    rollouts["tuned"] = [failed, silent, rollouts["tuned"][2]]
    results = compute_results(rollouts, build_questions(4))
    comparison = compare(results, "base", num_resamples=50)
    incidents = comparison.incidents["tuned"]
    assert (incidents.num_errors, incidents.num_without_search, incidents.num_missing) == (1, 1, 1)
    assert get_value(comparison, "first_hit_rate", "tuned") == 0.25
    assert comparison.row("first_hit_rate").metrics["tuned"].n == 4
    assert comparison.row("num_searches").metrics["tuned"].n == 2


def test_a_comparison_survives_json():
    comparison = build_comparison(RANKS)
    data = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert data["num_questions"] == 4
    assert data["rows"][0]["metrics"]["tuned"]["value"] == 0.75
    assert data["rows"][0]["differences"][1]["policy"] == "tuned"
    assert data["split"] == "test"
    assert data["clusters"] == {"num_clusters": 4, "largest": 1, "num_effective": 4.0}
    assert [room["name"] for room in data["room"]] == ["hit_at_1", "hit_at_3", "hit_at_10", "mrr"]


def test_a_reference_is_cut_at_as_many_pages_as_the_policy_shows():
    comparison = build_searching()
    row, pages = comparison.row("success_at_equal_pages"), comparison.row("pages_shown")
    assert (pages.metrics["base"].value, pages.metrics["question"].value) == (5, 3)
    # base finds two of three on its five pages; question one of three on its three, on which base finds no more.
    assert [row.metrics[name].value for name in ("base", "question")] == pytest.approx([2 / 3, 1 / 3])
    difference = row.difference("question", "base")
    assert (difference.reference_value, difference.value) == pytest.approx((1 / 3, 0))


def test_success_at_more_pages_is_no_advantage():
    """The second search of base finds what question has at rank 5: the success rates differ, at equal pages nothing does."""
    comparison = build_searching("other", subject="base", baseline="other")
    difference = comparison.row("success_at_equal_pages").difference("base", "other")
    assert (difference.reference_value, difference.value, difference.num_higher) == pytest.approx((2 / 3, 0, 0))
    assert comparison.row("success_rate").difference("base", "other").value == pytest.approx(1 / 3)


def test_who_shows_fewer_pages_has_no_advantage_of_it():
    questions = build_questions(2)
    rollouts = build_rollouts({"base": [2, 3], "tuned": [2, 3]})
    rollouts["tuned"][0] = dataclasses.replace(rollouts["tuned"][0], turns=rollouts["tuned"][0].turns[1:])  # answers at once
    comparison = compare(compute_results(rollouts, questions), "base", num_resamples=50)
    difference = comparison.row("success_at_equal_pages").difference("tuned", "base")
    assert (difference.reference_value, difference.value) == (1, -0.5)


def test_questions_that_share_documents_are_tested_together():
    ranks = {"base": [None] * 40, "tuned": [1] * 20 + [None] * 20}
    alone, shared = (build_comparison(ranks, num_documents=number).row("hit_at_1") for number in (None, 4))
    assert [row.difference("tuned", "base").test for row in (alone, shared)] == ["mcnemar", "sign_flip"]
    assert alone.difference("tuned", "base").p_value == pytest.approx(2 / 2**20)
    # Of the 16 ways to flip four clusters of which each gained, two are as extreme.
    assert shared.difference("tuned", "base").p_value == pytest.approx(2 / 16, abs=0.05)


TESTED = {"raw": [2] * 9 + [None] * 7, "base": [2] * 4 + [None] * 12, "tuned": [1] * 14 + [None, 6]}


def test_the_subject_is_tested_against_each_other_policy_on_a_few_measures_together():
    comparison = build_comparison(TESTED)
    names = ("first_hit_rate", "hit_at_1", "hit_at_10", "mrr")
    tests = [comparison.row(name).difference("tuned", reference) for name in names for reference in ("raw", "base")]
    assert [test.adjusted_p_value for test in tests] == pytest.approx(holm([test.p_value or 0 for test in tests]))
    assert count_tests(comparison.rows, comparison.top_k) == 8


def test_the_first_hit_rate_counts_once_by_whichever_name():
    comparison = build_comparison(TESTED)
    by_name, by_rank = (comparison.row(name).difference("tuned", "base") for name in ("first_hit_rate", "hit_at_3"))
    assert by_name.adjusted_p_value == by_rank.adjusted_p_value is not None


def test_other_measures_and_other_pairs_are_not_tested():
    comparison = build_comparison(TESTED)
    assert comparison.row("first_hit_rate").difference("raw", "base").adjusted_p_value is None
    for name in ("success_rate", "success_at_equal_pages", "hit_at_5", "pages_shown", "anls"):
        difference = comparison.row(name).difference("tuned", "base")
        assert difference.p_value is not None
        assert difference.adjusted_p_value is None


SEARCHED = {"question": [1, None, 5, None, 3], "base": [2, 9, None, None, 1], "tuned": [4, 2, 2, None, None]}


def test_the_best_single_policy_is_that_of_each_measure_and_the_oracle_takes_the_best_search_of_each_question():
    rooms = {room.name: room for room in build_comparison(SEARCHED).room}
    found = {name: (room.best_policy, room.best) for name, room in rooms.items()}
    assert found["hit_at_1"] == ("question", 1 / 5)
    assert found["hit_at_10"] == ("question", 3 / 5)
    assert found["mrr"] == ("base", pytest.approx((1 / 2 + 1 / 9 + 1) / 5))
    assert rooms["hit_at_3"].gain == pytest.approx(4 / 5 - 2 / 5)
    assert [rooms[name].oracle for name in ("hit_at_1", "hit_at_3")] == [2 / 5, 4 / 5]  # the best ranks: 1, 2, 2, none and 1
    assert rooms["mrr"].oracle == pytest.approx((1 + 1 / 2 + 1 / 2 + 1) / 5)


def test_the_question_takes_part_though_it_is_no_policy():
    policies = {name: SEARCHED[name] for name in ("base", "tuned")}
    results = compute_results(build_rollouts(policies), build_questions(5))
    assert compute_headroom(results, SEARCHED["question"]) == compute_headroom(
        compute_results(build_rollouts({**policies, "question": SEARCHED["question"]}), build_questions(5)), None
    )
