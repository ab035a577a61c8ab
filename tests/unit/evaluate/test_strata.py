from dataclasses import replace

from evaluation_cases import build_questions, build_rollouts

from drag_ray.evaluate.comparison import compare
from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.strata import MAX_CATEGORIES, build_strata
from drag_ray.types import Evidence

RANKS = {"base": [1, None, 1, None], "tuned": [1, 1, None, None]}


def compute(categories, evidence=None):
    questions = build_questions(len(categories))
    rollouts = {
        policy: [
            replace(rollout, category=category, evidence=(*rollout.evidence, *(evidence or {}).get(place, ())))
            for place, (rollout, category) in enumerate(zip(policy_rollouts, categories, strict=True))
        ]
        for policy, policy_rollouts in build_rollouts({p: (ranks * 9)[: len(categories)] for p, ranks in RANKS.items()}).items()
    }
    asked = [replace(question, evidence=rollout.evidence) for question, rollout in zip(questions, rollouts["base"], strict=True)]
    return compute_results(rollouts, asked)


def test_each_category_has_the_rate_and_the_difference_on_its_own_questions():
    strata = {row.name: row for row in compare(compute(["a", "a", "a", "b"]), "base", num_resamples=200).strata}
    assert list(strata) == ["category:a", "category:b"]
    assert {policy: (metric.value, metric.n) for policy, metric in strata["category:a"].metrics.items()} == {
        "base": (2 / 3, 3),
        "tuned": (2 / 3, 3),
    }
    [difference] = strata["category:a"].differences
    assert (difference.value, difference.num_higher, difference.num_lower, difference.finding) == (0.0, 1, 1, None)
    assert strata["category:b"].metrics["tuned"].value == 0.0


def test_questions_are_parted_by_how_far_apart_their_evidence_lies():
    pages = {1: (Evidence("manual-1.pdf", 8),), 2: (Evidence("manual-9.pdf", 8),), 3: (Evidence("manual-3.pdf", 7),)}
    strata = compare(compute(["a"] * 4, pages), "base", num_resamples=200).strata
    counts = {row.name: row.metrics["base"].n for row in strata}
    # A page that is named twice is one page.
    assert counts == {"hops:single": 2, "hops:cross_page": 1, "hops:cross_document": 1}


def test_a_set_of_one_kind_has_no_parts():
    assert build_strata(compute(["", "", ""])) == []


def test_small_categories_of_many_are_one_part():
    labels = [measure.label for measure in build_strata(compute([f"c{number}" for number in range(MAX_CATEGORIES + 3)]))]
    assert len(labels) == MAX_CATEGORIES + 1
    assert labels[0] == "category (others)"
