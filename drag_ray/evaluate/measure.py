"""A measure is a definition; its value for a policy is a metric.

The criterion of a task is the measure that the verdict rests on, with those that are tested beside it, and how both are said.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from drag_ray.agent.tasks import TASKS
from drag_ray.errors import DataError
from drag_ray.evaluate.question_result import QuestionResult

FIRST_HIT_RATE, ANSWER_ACCURACY = "first_hit_rate", "anls_accuracy"


class Unit(StrEnum):
    """The unit that the mean of a measure is read in."""

    SHARE = "share"
    """A share of the questions; shown in percent."""
    RATE = "rate"
    """A mean of shares within a rollout; shown in percent."""
    SCORE = "score"
    """A mean of scores in 0..1."""
    COUNT = "count"
    """A mean of counts or of ranks."""

    @property
    def is_percent(self) -> bool:
        """True if the numbers are written in percent."""
        return self in (Unit.SHARE, Unit.RATE)


@dataclass(frozen=True, slots=True)
class Measure:
    """One definition. `compute` gives its value on one question, or None where it does not apply.

    The metric is the mean over the questions to which the measure applies.  With `needs_model` it does not apply to
    a policy without a model, such as searching the question itself.  With `compute_reference` the value of a reference depends
    on the policy that is compared with it: it is given the results of the policy and of the reference.
    """

    name: str
    label: str
    definition: str
    unit: Unit
    compute: Callable[[QuestionResult], float | None]
    higher_is_better: bool = True
    needs_model: bool = False
    compute_reference: Callable[[QuestionResult, QuestionResult], float | None] | None = None


@dataclass(frozen=True, slots=True)
class Criterion:
    """It is fixed beforehand; all other measures are there to explain it.

    Attributes:
        primary: the name of the measure that the verdict rests on, a share of the questions.
        tested: the names of those on which the subject is tested against every other policy, which share one correction (see
            `rows`), the primary one first.
        ranked_by: the name of the one that rounds of training are chosen by.
        more: what the report says of a policy that is significantly better by it.
        less: the same of one that is significantly worse.
        counted: one question that it counts, in words that an s makes several.
        is_counted: whether it counts a question.
        solved: when a question is solved, in words.
        solved_at: the 1-based turn with which a rollout solved its question, None where it did not.
        judged_by: what `grade` is, in words.
        grade: by which two policies are told apart on a question, higher is better and 0 the worst.
    """

    primary: str
    tested: tuple[str, ...]
    ranked_by: str
    more: str
    less: str
    counted: str
    is_counted: Callable[[QuestionResult], bool]
    solved: str
    solved_at: Callable[[QuestionResult], int | None]
    judged_by: str
    grade: Callable[[QuestionResult], float]


CRITERIA = {
    "ranking": Criterion(
        primary=FIRST_HIT_RATE,
        tested=(FIRST_HIT_RATE, "hit_at_1", "hit_at_3", "hit_at_10", "mrr"),
        ranked_by="mrr",
        more="finds significantly more",
        less="finds significantly less",
        counted="first hit",
        is_counted=lambda result: result.is_first_hit,
        solved="when a search shows evidence of it",
        solved_at=lambda result: result.searches.iterations_to_success,
        judged_by="the rank of the evidence in the first search",
        grade=lambda result: result.reciprocal_rank,
    ),
    "answer": Criterion(
        primary=ANSWER_ACCURACY,
        tested=(ANSWER_ACCURACY, "anls", "semantic_accuracy"),
        ranked_by="anls",
        more="answers significantly better",
        less="answers significantly worse",
        counted="right answer",
        is_counted=lambda result: result.answer.is_right,
        solved="when its answer is right",
        solved_at=lambda result: result.usage.num_iterations if result.answer.is_right else None,
        judged_by="the ANLS* of the answer",
        grade=lambda result: result.answer.anls or 0.0,
    ),
}
"""By what tasks are scored by (`TaskKind.scored_by`)."""


def find_task(results: Sequence[QuestionResult]) -> str:
    """The task of a policy, from its results; the first of all where none of its rollouts is there."""
    return next((result.task for result in results if result.task), next(iter(TASKS)))


def choose_criterion(task: str) -> Criterion:
    """The criterion of a task. Raises DataError: there is no such task."""
    if task not in TASKS:
        raise DataError(f"rollouts of the task {task[:80]!r}, expected one of {', '.join(TASKS)}. Another version made them.")
    return CRITERIA[TASKS[task].scored_by]


def leave_unasked(results: Sequence[QuestionResult], criterion: Criterion) -> Sequence[QuestionResult]:
    """The same, where answers are judged without those of a policy that was to search alone, as most baselines are: it has none,
    rather than wrong ones."""
    tasks = {result.task for result in results if result.task}
    if criterion.primary != ANSWER_ACCURACY or not tasks or any(choose_criterion(task) is criterion for task in tasks):
        return results
    if any(result.answer.anls for result in results):
        return results
    return [replace(result, answer=replace(result.answer, anls=None, semantic=None)) for result in results]
