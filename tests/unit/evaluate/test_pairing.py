from dataclasses import replace
from pathlib import Path

import pytest
from evaluation_cases import build_comparison, build_questions
from finished_cases import write_evaluation

from drag_ray.cli.main import main
from drag_ray.errors import DataError
from drag_ray.evaluate.effort import NO_PRICES
from drag_ray.evaluate.pairing import Side, compare_evaluations

BASE, FIRST, SECOND = [None, 4, 2, 1] * 5, [1, 4, None, 1] * 5, [1, 1, 3, 1] * 5


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Side, Side]:
    folder = tmp_path_factory.mktemp("runs")
    paths = [
        write_evaluation(folder / name / "evaluate", {"base": BASE, "tuned": ranks})
        for name, ranks in (("one", FIRST), ("two", SECOND))
    ]
    return Side(paths[0].parent), Side(paths[1])


def compare_sides(first, second):
    return compare_evaluations(first, second, NO_PRICES, num_resamples=500)


@pytest.mark.seconds
def test_two_evaluations_are_compared_as_policies_of_one_are(sides):
    comparison, context = compare_sides(*sides)
    together = build_comparison({"A:tuned": FIRST, "B:tuned": SECOND}, baseline="A:tuned")
    assert comparison.rows == together.rows
    assert (comparison.baseline, comparison.subject) == ("A:tuned", "B:tuned")
    assert "Compared on the 20 common questions, of 20 of A and 20 of B." in context.summary


def test_policies_can_be_chosen_on_both_sides(sides):
    first, second = sides
    comparison, _ = compare_sides(replace(first, policies=("base", "tuned")), replace(second, policies=("tuned", "base")))
    assert comparison.policies == ("A:base", "A:tuned", "B:tuned", "B:base")
    assert (comparison.baseline, comparison.subject) == ("A:base", "B:tuned")
    with pytest.raises(DataError, match="no policy 'start', expected some of base, tuned"):
        compare_sides(replace(first, policies=("start",)), second)


def test_only_the_questions_of_both_are_compared(sides, tmp_path):
    some = build_questions(20)[:15]
    fewer = Side(write_evaluation(tmp_path / "three", {"base": BASE, "tuned": SECOND}, some))
    comparison, context = compare_sides(sides[0], fewer)
    assert comparison.question_ids == tuple(question.id for question in some)
    assert "15 common questions, of 20 of A and 15 of B" in context.summary


def test_evaluations_of_other_questions_are_refused(tmp_path):
    questions = build_questions(20)
    others = Side(write_evaluation(tmp_path / "a", {"base": BASE[:1], "tuned": BASE[:1]}, questions[:1]))
    later = Side(write_evaluation(tmp_path / "b", {"base": BASE, "tuned": BASE}, questions[1:]))
    with pytest.raises(DataError, match="have no question in common"):
        compare_sides(others, later)


def test_the_command_says_what_a_and_b_are_and_what_is_sure(sides, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, second = sides
    command = ["compare", str(first.path), str(second.path), "--a-policies", "base", "--report", str(tmp_path / "out")]
    assert main(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"B is {second.path}." in said
    assert "B:tuned finds significantly more than A:base: 10 more first hits over 20 test questions" in said
    assert (tmp_path / "out" / "report.md").read_text().startswith("# Two evaluations\n\n## Verdict")
