"""OpenSearch-VL's reward and its bookkeeping of broken rollouts, against values computed by hand."""

import pytest

from drag_ray.process.turns import find_fatal_step
from drag_ray.recipes.opensearch_vl.reward import Step, compute_answer_reward, compute_format_factor

GOOD, BAD, FAILED = Step(True), Step(False), Step(True, has_tool_error=True)


@pytest.mark.parametrize(
    ("steps", "fatal_step", "factor"),
    [
        ([GOOD, GOOD], None, 1.0),
        ([GOOD, BAD, FAILED, GOOD], None, 0.5),
        ([GOOD, FAILED, FAILED, FAILED], 1, 1.0),
        ([FAILED, FAILED, FAILED], 0, 0.0),
        ([], None, 0.0),
    ],
)
def test_the_format_is_the_share_of_good_steps_before_the_fatal_one(
    steps: list[Step], fatal_step: int | None, factor: float
) -> None:
    assert compute_format_factor(steps, fatal_step) == factor


def test_the_reward_is_format_times_accuracy_and_queries() -> None:
    assert compute_answer_reward([GOOD, BAD], has_answer=True, accuracy=1.0, query_quality=0.5) == pytest.approx(0.5 * 0.9)
    assert compute_answer_reward([GOOD], has_answer=True, accuracy=0.5) == 0.5


def test_a_judge_that_fails_is_not_a_wrong_answer() -> None:
    assert compute_answer_reward([GOOD], has_answer=True, accuracy=None, query_quality=1.0) is None


def test_without_an_answer_nothing_is_earned() -> None:
    assert compute_answer_reward([GOOD] * 50, has_answer=False, accuracy=None, query_quality=1.0) == 0.0


@pytest.mark.parametrize(
    ("errors", "step"),
    [("xxx", 0), (".xxx.", 1), ("xx.xx", None), ("x.xxxx", 2), ("", None), ("xx", None)],
)
def test_three_errors_in_a_row_are_fatal_from_the_first_of_them(errors: str, step: int | None) -> None:
    assert find_fatal_step([error == "x" for error in errors]) == step
