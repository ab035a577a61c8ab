"""Questions whose pages are not known, as benchmarks of answers have them: they are compared by their answers alone."""

import json
from pathlib import Path

import pytest
from factories import build_answer, build_question, build_search, build_trajectory
from finished_cases import finish_evaluation

from drag_ray.evaluate.comparison import compare
from drag_ray.evaluate.question_result import Hops
from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.statistics.intervals import compute_clusters
from drag_ray.types import Question, Trajectory

KNOWN = build_question(id="k", answers=("340 rpm",))
ALONE = [build_question(id=f"a{number}", evidence=(), answers=("340 rpm",)) for number in range(4)]
ANSWERS = {"base": ("340 rpm", "fast", "", "fuel", "oil"), "tuned": ("340 rpm", "340 rpm", "340 rpm", "", "oil")}


def build_rollouts(questions: list[Question]) -> dict[str, list[Trajectory]]:
    return {
        policy: [
            build_trajectory(
                build_search(evidence_rank=2 if question.evidence else None),
                build_answer(answer),
                question=question,
                task="answer",
                id=f"{policy}-{question.id}",
            )
            for question, answer in zip(questions, answers, strict=False)
        ]
        for policy, answers in ANSWERS.items()
    }


def test_answers_are_measured_over_all_and_searches_over_those_whose_pages_are_known() -> None:
    questions = [KNOWN, *ALONE]
    comparison = compare(compute_results(build_rollouts(questions), questions), "base", num_resamples=100)
    accuracy, hits = (comparison.row(name).metrics["tuned"] for name in ("anls_accuracy", "first_hit_rate"))
    assert (accuracy.value, accuracy.n) == (0.6, 5)
    assert (hits.value, hits.n) == (1.0, 1)


def test_each_of_them_is_drawn_by_itself_and_lies_nowhere() -> None:
    results = compute_results(build_rollouts([KNOWN, *ALONE]), [KNOWN, *ALONE])["base"]
    assert len(set(compute_clusters(results).tolist())) == 5
    assert [result.hops for result in results] == [Hops.SINGLE, *[Hops.UNKNOWN] * 4]


@pytest.mark.seconds
def test_a_benchmark_of_answers_alone_has_its_report(tmp_path: Path) -> None:
    path = finish_evaluation(tmp_path / "evaluate", build_rollouts(ALONE), ALONE)
    comparison = json.loads((path / "comparison.json").read_text())
    accuracies = {row["name"]: row["metrics"]["tuned"]["value"] for row in comparison["rows"]}
    assert accuracies["anls_accuracy"] == 0.75
    assert "answers" in " ".join(comparison["verdict"])
    assert "340 rpm" in (path / "report.html").read_text()


def test_without_a_page_and_an_answer_nothing_can_be_told() -> None:
    question = build_question(evidence=(), answers=())
    with pytest.raises(ValueError, match="no evidence page and no known answer"):
        compute_results(build_rollouts([question]), [question])
