"""On which side each question is: training, validation, or neither because evaluation asks for the same."""

from collections.abc import Iterable, Sequence

from drag_ray.corpus.split import assign_splits, normalise_question
from drag_ray.format.config import FormatConfig
from drag_ray.types import Evidence, Question

TRAIN, VALIDATION, WITHHELD = "train", "validation", "withheld"


def assign_sides(questions: Sequence[Question], evaluation: Iterable[Question], config: FormatConfig) -> dict[str, str]:
    """The side of each question id.

    A question is withheld if it shares its text or an evidence page with one of `evaluation`, or with split_by="document" an
    evidence file.  The others are split so that what shares an evidence page, a text or a group stays together (and with
    "document" what shares a file), by the seed and the ids alone: the same questions always split the same way.

    Args:
        questions: all questions with rows; their `split` is not looked at.
        evaluation: the questions that evaluation asks.
    """
    taken = {tie for question in evaluation for tie in _list_ties(question, config.split_by)}
    free = [question for question in questions if taken.isdisjoint(_list_ties(question, config.split_by))]
    fraction = config.validation_fraction
    if fraction and len(free) > 1:
        # One question at least, and never all of them.
        fraction = min(max(fraction, 1 / len(free)), (len(free) - 1) / len(free))
    sides = {question.id: WITHHELD for question in questions}
    for question in assign_splits(free, fraction if len(free) > 1 else 0.0, config.seed, config.split_by):
        sides[question.id] = VALIDATION if question.split == "test" else TRAIN
    return sides


def _list_ties(question: Question, split_by: str) -> list[str | Evidence]:
    ties: list[str | Evidence] = [f"id {question.id}", f"text {normalise_question(question.question)}", *question.evidence]
    return [*ties, *(f"file {page.file}" for page in question.evidence)] if split_by == "document" else ties
