"""Pages of a question that are evidence or not, as the format stage writes them (relevance), for methods that train a ranker."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from drag_ray.engine.conversation import Row, take_columns
from drag_ray.finetune.tokenized_rows import group_rows

NOTHING_TO_COMPARE = (
    "no question has both evidence and another page. Raise format.relevance_pages or format.relevance_depth, or name evidence "
    "that the index has."
)
_LEARNED = 0.9
"""of the loss of who cannot tell pages apart"""


class JudgedPassage(TypedDict):
    """A question with a part of a page, and whether that page is evidence."""

    question: str
    passage: str
    is_evidence: bool


def read_passage(row: Row) -> JudgedPassage:
    """The columns of a row. Raises what `take_columns` does."""
    return take_columns(row, JudgedPassage, "a judged passage")


def name_question(row: Mapping[str, Any]) -> str:
    """The name that the pages of a question share."""
    return str(row.get("question_id", row["question"]))


def list_kinds(rows: Iterable[Row]) -> list[list[bool]]:
    """Of each question that has both evidence and other pages, which of its pages are evidence."""
    questions = [[read_passage(row)["is_evidence"] for row in pages] for pages in group_rows(rows, name_question)]
    return [kinds for kinds in questions if len(set(kinds)) == 2]


def diagnose_order(counts: Mapping[str, Any], rows: Iterable[Row], draw: Callable[[list[bool]], float]) -> str:
    """The words that a ranker tells pages apart hardly better than who draws their order; empty where it does.

    Args:
        counts: of the stage.
        rows: of the validation side.
        draw: the loss of who draws the order of such pages.
    """
    loss, questions = counts["eval_loss_after"], list_kinds(rows)
    if loss is None or not questions:
        return ""
    of_drawing = sum(map(draw, questions)) / len(questions)
    if loss < _LEARNED * of_drawing:
        return ""
    return (
        f"the reranker has hardly learned to tell pages apart: its loss on validation rows is {loss:.3f}, and "
        f"{of_drawing:.3f} if it drew the order of pages. Its order may be worse than that of the search: look at `rerank` "
        "in an evaluation first. More questions, more epochs or a larger model may help."
    )
