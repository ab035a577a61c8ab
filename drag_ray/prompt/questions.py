"""Which training questions proposals are made from, and which they are chosen by."""

from collections.abc import Sequence
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
    questions: Sequence[Question], num_validation: int, seed: int, near_duplicates: NearDuplicates = NO_NEAR_DUPLICATES
) -> QuestionSets:
    """Draw the validation questions at random, half of all at most. What overlaps with them is left out of the others.

    Args:
        questions: of the train split; those without evidence are left out, since nothing can be found for them.

    Raises:
        DataError: nothing is left for one of the two.
    """
    answerable = [question for question in questions if question.evidence]
    drawn = draw_questions(answerable, min(num_validation, len(answerable) // 2), seed) if len(answerable) > 1 else []
    chosen = {question.id for question in drawn}
    others = [question for question in answerable if question.id not in chosen]
    overlaps = find_overlaps(others, drawn, "question", near_duplicates)
    feedback = [question for question in others if question.id not in overlaps]
    if not drawn or not feedback:
        raise DataError(
            f"{len(questions)} train questions, {len(answerable)} of them with evidence and {len(overlaps)} of these on the same "
            "pages as those for validation: expected at least one for validation and one more to make proposals from. "
            "Add questions, or lower prompt.validation_questions."
        )
    return QuestionSets(tuple(feedback), tuple(drawn))
