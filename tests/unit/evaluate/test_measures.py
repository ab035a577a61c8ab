import json
from dataclasses import replace

from evaluation_cases import build_questions, build_rollouts

from drag_ray.agent.shown_images import join_text
from drag_ray.evaluate.comparison import compare
from drag_ray.evaluate.measures import MAX_CATEGORIES, build_recalls
from drag_ray.evaluate.results import compute_results
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
    assert compare(compute(["", "", ""]), "base", num_resamples=50).strata == ()


def test_small_categories_of_many_are_one_part():
    results = compute([f"c{number}" for number in range(MAX_CATEGORIES + 3)])
    labels = [row.label for row in compare(results, "base", num_resamples=50).strata]
    assert len(labels) == MAX_CATEGORIES + 1
    assert labels[0] == "category (others)"


def show(query_images=0, candidate=("a text",)):
    """The opening of a list: a query with so many images, and candidates of these parts; `image` stands for one."""
    image = {"type": "image", "image": "3f.jpg"}
    parts = [{"type": "text", "text": "Query: "}, *[image] * query_images, {"type": "text", "text": "Q\n\nCandidates:\n\n(1) "}]
    parts += [image if part == "image" else {"type": "text", "text": part} for part in (*candidate, "\n\n(2) ", *candidate)]
    return json.dumps([{"role": "system", "content": "s"}, {"role": "user", "content": join_text(parts)}])


def test_the_recall_of_lists_is_that_of_m_beir_by_task_and_set():
    ranks = {"question": [1, 6, None, 2, 11], "base": [1, 1, 6, None, 2]}
    shown = [show(), show(candidate=["image"]), show(candidate=["image", "it is red"]), show(1, ["image"]), show(1)]
    questions = build_questions(5)
    rollouts = {
        policy: [
            replace(
                rollout, task="rerank", depth=20, question="Q", messages=shown[place], category="cirr" if place < 2 else "webqa"
            )
            for place, rollout in enumerate(policy_rollouts)
        ]
        for policy, policy_rollouts in build_rollouts(ranks).items()
    }
    rollouts["base"][3] = replace(rollouts["base"][3], error="gone", messages="")  # the task is known of the other policy
    results = compute_results(rollouts, questions)
    recalls = {row.name: row for row in compare(results, "question", num_resamples=200).recalls}
    values = {name: [row.metrics[policy].value for policy in ranks] for name, row in recalls.items()}
    assert {name: value for name, value in values.items() if name.startswith("recall_at_5")} == {
        "recall_at_5:all": [0.4, 0.6],
        "recall_at_5:modalities:text to text": [1, 1],
        "recall_at_5:modalities:text to image": [0, 1],
        "recall_at_5:modalities:text to mixed": [0, 0],
        "recall_at_5:modalities:mixed to image": [1, 0],
        "recall_at_5:modalities:mixed to text": [0, 1],
        "recall_at_5:category:cirr": [0.5, 1],
        "recall_at_5:category:webqa": [1 / 3, 1 / 3],
    }
    assert [values[f"recall_at_{k}:all"] for k in (1, 10)] == [[0.2, 0.4], [0.6, 0.8]]
    assert recalls["recall_at_5:category:cirr"].metrics["base"].n == 2
    assert {difference.reference for difference in recalls["recall_at_1:all"].differences} == {"question"}


def test_a_right_candidate_among_the_first_is_enough_however_many_there_are():
    [question] = build_questions(1)
    evidence = (*question.evidence, Evidence("manual-9.pdf", 8), Evidence("manual-8.pdf", 8))
    [rollout] = build_rollouts({"base": [1]})["base"]
    rollout = replace(rollout, task="rerank", question="Q", messages=show(), evidence=evidence)
    results = compute_results({"base": [rollout]}, [replace(question, evidence=evidence)])
    [recall] = [measure for measure in build_recalls(results) if measure.name == "recall_at_1:all"]
    assert recall.compute(results["base"][0]) == 1


def test_what_is_no_list_has_no_recall_of_lists():
    assert build_recalls(compute(["a", "b"])) == []
