from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from drag_ray.errors import DataError
from drag_ray.evaluate.history import RoundEvaluation, RoundResult, choose_best, compare_rounds, format_history
from drag_ray.evaluate.question_result import AnswerScore, Hops, QuestionResult, SearchScore


def build_result(question_id: str, rank: int | None) -> QuestionResult:
    searches = SearchScore(first_search_rank=rank)
    return QuestionResult(
        question_id, file="", group="", category="", hops=Hops.SINGLE, num_evidence=1, top_k=3, depth=5, searches=searches
    )


def build_evaluation(
    number: int, tuned: Sequence[int | None], names: Sequence[str] = (), trained: Collection[str] = ()
) -> RoundEvaluation:
    """A round whose policy found these ranks, where the base model found 2 and the question 4."""
    ids = names or [f"q{place}" for place in range(len(tuned))]
    results = {
        "tuned": [build_result(name, rank) for name, rank in zip(ids, tuned, strict=True)],
        "base": [build_result(name, 2) for name in ids],
        "question": [build_result(name, 4) for name in ids],
    }
    return RoundEvaluation(number, "sft", results, trained)


def build_history(*ranks: int) -> list[RoundResult]:
    return compare_rounds([build_evaluation(number, [rank]) for number, rank in enumerate(ranks, start=1)])


def test_a_round_is_measured_beside_base_and_question() -> None:
    [result] = compare_rounds([build_evaluation(1, [1, None])])
    assert result.tuned == {"hit1": 0.5, "hit3": 0.5, "hit10": None, "mrr": 0.5}  # rankings end at 5
    assert (result.base["mrr"], result.question["mrr"], result.num_questions) == (0.5, 0.25, 2)


def test_rounds_are_compared_on_what_all_held_out_and_none_trained_on() -> None:
    first = build_evaluation(1, [2, 1, 1, 5], names=["a", "b", "c", "d"], trained={"e"})
    second = build_evaluation(2, [1, 5, 1], names=["a", "d", "e"], trained={"b", "d"})
    results = compare_rounds([first, second])
    assert [result.num_questions for result in results] == [1, 1]  # b was trained on, c not held out, d and e trained on
    assert [result.tuned["mrr"] for result in results] == [0.5, 1.0]


def test_rounds_without_a_common_question_are_refused() -> None:
    with pytest.raises(DataError, match=r"rounds 1 to 2: no question .*collect.limit"):
        compare_rounds([build_evaluation(1, [1], names=["a"]), build_evaluation(2, [1], names=["b"])])


def test_the_best_round_has_the_highest_mrr_and_of_equals_is_the_first() -> None:
    assert choose_best(build_history(3, 1, 2)).number == 2
    assert choose_best(build_history(3, 1, 1)).number == 2


def test_the_table_has_the_question_the_base_model_and_each_round() -> None:
    lines = format_history(build_history(2, 1)).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["question", "base", "round", "round"]
    assert lines[-1].split() == ["round", "2", "sft", "1.000", "1.000", "-", "1.000"]


def test_rounds_of_a_task_that_answers_are_chosen_by_their_answers() -> None:
    tasks = {"tuned": "answer", "base": "answer", "question": "find_page"}
    evaluations = []
    for number, rank, anls in ((1, 1, 0.25), (2, 3, 0.75)):
        found, scores = build_evaluation(number, [rank]), {"tuned": anls, "base": 0.5, "question": 0.0}
        answered = {
            policy: [replace(row, answer=AnswerScore(scores[policy]), task=tasks[policy]) for row in rows]
            for policy, rows in found.results.items()
        }
        evaluations.append(replace(found, results=answered))
    history = compare_rounds(evaluations)
    assert choose_best(history).number == 2  # the first has found more
    assert history[1].tuned | {"mrr": None} == {
        "accuracy": 1.0,
        "anls": 0.75,
        "hit1": 0.0,
        "hit3": 1.0,
        "hit10": None,
        "mrr": None,
    }
    assert history[1].question["anls"] is None  # it does not answer
    assert choose_best(history).chosen_by == "ANLS*"
    assert format_history(history).splitlines()[-1].split()[:5] == ["round", "2", "sft", "1.000", "0.750"]
