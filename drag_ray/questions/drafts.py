"""Drafts: questions as the model wrote them, with what became of each, and the counts and tables that are made of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from drag_ray.questions.config import QuestionsConfig
from drag_ray.questions.filters import find_repeated
from drag_ray.questions.prompts import list_shown_questions
from drag_ray.types import Evidence, Question

Reason = Literal[
    "",
    "budget",
    "failed",
    "unreadable",
    "self_reference",
    "copied",
    "too_easy",
    "not_found",
    "unanswerable",
    "one_page",
    "known",
    "ambiguous",
    "near_duplicate",
]
"""Why a draft is left out; empty for none. An endpoint's budget was spent before it was written, the engine could not answer, or
the reply is no question; then the filters, in their order."""
NOT_WRITTEN: tuple[Reason, ...] = ("budget", "failed")
"""Drafts that a stage which goes on has written again."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A written question.

    Attributes:
        detail: what it was left out for: the error, the reply that cannot be read, or the answer that the model gave.
        other_pages: the second page of a question over two, or those that answer one over a single page too.
        link: words that the pages of a question over two share.
        rank: of the page, searched with the question; 0 where it was not found or not searched.
        prompt_tokens: of all requests about it.
        seconds: since the draft before it was there.
    """

    id: str
    kind: str
    file: str
    page_number: int
    question: str = ""
    answer: str = ""
    reason: Reason = ""
    detail: str = ""
    other_pages: tuple[Evidence, ...] = ()
    link: tuple[str, ...] = ()
    rank: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def to_question(self) -> Question:
        """The question with its evidence, without a split."""
        evidence = (Evidence(self.file, self.page_number), *self.other_pages)
        return Question(self.id, self.question, evidence, (self.answer,), f"written_{self.kind}")


DRAFT = TypeAdapter(Draft)


def drop_repeated(drafts: Sequence[Draft], config: QuestionsConfig) -> list[Draft]:
    """The drafts, with a reason for those that nearly duplicate an earlier one which is kept, or an example."""
    if "near_duplicate" not in config.filters:
        return list(drafts)
    examples = (*config.examples, *list_shown_questions())
    kept = [place for place, draft in enumerate(drafts) if not draft.reason]
    repeated = {kept[place] for place in find_repeated([drafts[place].question for place in kept], examples)}
    return [replace(draft, reason="near_duplicate") if place in repeated else draft for place, draft in enumerate(drafts)]


def count_drafts(drafts: Sequence[Draft]) -> dict[str, float]:
    """Counts: drafts, those left out for each reason of a filter, questions kept, other pages that answer these too, and what one
    of them has cost."""
    reasons = Counter(draft.reason for draft in drafts)
    num_kept = reasons[""]
    read, written, seconds = (
        sum(getattr(draft, name) for draft in drafts) for name in ("prompt_tokens", "completion_tokens", "seconds")
    )
    return {
        "drafts": len(drafts),
        **{f"left_out_{reason}": reasons[reason] for reason in get_args(Reason) if reason and reason != "budget"},
        "questions": num_kept,
        "other_pages": sum(len(draft.other_pages) for draft in drafts if not draft.reason and not draft.link),
        "prompt_tokens": read,
        "completion_tokens": written,
        **({"tokens_per_question": (read + written) / num_kept, "seconds_per_question": seconds / num_kept} if num_kept else {}),
    }


def build_rows(questions: Iterable[Question]) -> list[dict[str, Any]]:
    """The rows of `questions.jsonl`, as `corpus.questions` reads them."""
    return [
        {
            "id": question.id,
            "question": question.question,
            "answer": question.answers[0],
            "evidence": [{"file": page.file, "page_number": page.page_number} for page in question.evidence],
            "category": question.category,
            "split": question.split,
        }
        for question in questions
    ]
