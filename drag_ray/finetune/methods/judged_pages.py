"""Pages of a question that are evidence or not, as the format stage writes them (relevance), for methods that train a ranker."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from drag_ray.engine.conversation import Row, take_columns

NOTHING_TO_COMPARE = (
    "no question has both evidence and another page with other text. Raise format.relevance_pages or format.relevance_depth, or "
    "name evidence that the index has."
)
_LEARNED = 0.9
"""of the loss of who cannot tell pages apart, above the least one"""


class JudgedPassage(TypedDict):
    """A question with a part of a page, whether that page is evidence, if somebody says so, and a teacher's score of it."""

    question: str
    passage: str
    is_evidence: bool | None
    score: NotRequired[float | None]


def read_passage(row: Row) -> JudgedPassage:
    """The columns of a row. Raises what `take_columns` does."""
    return take_columns(row, JudgedPassage, "a judged passage")


def name_question(row: Mapping[str, Any]) -> str:
    """The name that the pages of a question share."""
    return str(row.get("question_id", row["question"]))


def diagnose_order(loss: float | None, drawn: Sequence[float], perfect: Sequence[float]) -> str:
    """The words that a ranker tells pages apart hardly better than who draws their order; empty where it does.

    Args:
        loss: on validation rows.
        drawn: the loss of who draws the order of a question's pages, for each question.
        perfect: the least loss of each.
    """
    if loss is None or not drawn:
        return ""
    of_drawing, least = sum(drawn) / len(drawn), sum(perfect) / len(drawn)
    if loss - least < _LEARNED * (of_drawing - least):
        return ""
    return (
        f"the reranker has hardly learned to tell pages apart: its loss on validation rows is {loss:.3f}, and "
        f"{of_drawing:.3f} if it drew the order of pages. Its order may be worse than that of the search: look at `rerank` "
        "in an evaluation first. More questions, more epochs or a larger model may help."
    )
