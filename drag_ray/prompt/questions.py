"""Which training questions proposals are made from, and which they are chosen by."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from drag_ray.corpus.near_duplicates import NO_NEAR_DUPLICATES, NearDuplicates
from drag_ray.corpus.questions import draw_questions
from drag_ray.corpus.split import find_overlaps
from drag_ray.errors import DataError
from drag_ray.types import Question


@dataclass(frozen=True, slots=True)
class QuestionSets:
    """The two sets of GEPA: `feedback` to reflect on, `validation` (its Pareto set) to choose by."""

    feedback: tuple[Question, ...]
    validation: tuple[Question, ...]


def divide_questions(
    questions: Sequence[Question],
    num_validation: int,
    seed: int,
    near_duplicates: NearDuplicates = NO_NEAR_DUPLICATES,
    held_out: Collection[str] = (),
) -> QuestionSets:
    """Draw the validation questions at random, half of all at most. What overlaps with them is left out of the others.

    Args:
        questions: of the train split; those without evidence are left out, since nothing can be found for them.
        held_out: ids of those that training is validated on; they are left out with all that overlaps with them, so that
            nothing that is chosen by them is chosen by what was optimised.

    Raises:
        DataError: nothing is left for one of the two.
    """
    answerable = [question for question in questions if question.evidence]
    apart = [question for question in answerable if question.id in held_out]
    free = _leave_out(answerable, apart, near_duplicates)
    drawn = draw_questions(free, min(num_validation, len(free) // 2), seed) if len(free) > 1 else []
    feedback = _leave_out(free, drawn, near_duplicates)
    if not drawn or not feedback:
        raise DataError(
            f"{len(questions)} train questions, {len(answerable)} of them with evidence, {len(free)} of these apart from the "
            f"validation questions of training and {len(feedback)} of these on other pages than the {len(drawn)} to choose by: "
            "expected at least one to choose by and one more to make proposals from. Add questions, or lower "
            "prompt.validation_questions."
        )
    return QuestionSets(tuple(feedback), tuple(drawn))


def _leave_out(questions: Sequence[Question], others: Sequence[Question], near_duplicates: NearDuplicates) -> list[Question]:
    """The questions that neither are among others nor overlap with one of them."""
    overlaps = find_overlaps(questions, others, "question", near_duplicates)
    return [question for question in questions if question.id not in overlaps]
