"""Questions that a person is to look at, and how far the filters agree with the verdicts."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import get_args

from drag_ray import schemas
from drag_ray.corpus.questions import QUESTIONS_NAME, hash_text, is_measurable, read_split
from drag_ray.corpus.verdicts import Verdict, is_seen
from drag_ray.errors import DataError
from drag_ray.questions.config import REJECTED_NAME
from drag_ray.questions.drafts import DRAFT, NOT_WRITTEN, OF_MANY, Draft, Reason
from drag_ray.storage.appended_lines import read_lines
from drag_ray.types import Question

_JUDGED: tuple[Reason, ...] = tuple(
    reason for reason in get_args(Reason) if reason not in ("", *NOT_WRITTEN, "unreadable", *OF_MANY)
)
"""Filters that a person can judge by the question and its page."""


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """A question to look at, and the filter that has left it out; empty for one that is asked."""

    question: Question
    left_out: Reason = ""


def list_items(index_dir: Path, written_dir: Path | None, num_left_out: int) -> list[ReviewItem]:
    """The test questions of a run, and some that its filters have left out, in an order that does not tell them apart.

    Args:
        written_dir: that of the stage `questions`, where it has finished.
        num_left_out: drafts that filters have left out, of each filter as many as of the others if it has them.

    Raises:
        DataError: there is no test question with evidence.
    """
    tested = [ReviewItem(question) for question in read_split(index_dir, "test", written_dir) if is_measurable(question)]
    if not tested:
        raise DataError(f"{index_dir.parent}: no test question with evidence to look at. See corpus.test_fraction.")
    has_own = schemas.read_table(index_dir / QUESTIONS_NAME, schemas.QUESTIONS, ["id"]).num_rows > 0
    drafts = read_lines(written_dir / REJECTED_NAME, DRAFT) if written_dir and not has_own else []
    left_out = [ReviewItem(draft.to_question(), draft.reason) for draft in _draw_left_out(drafts, num_left_out)]
    return sorted([*tested, *left_out], key=lambda item: hash_text(item.question.id, 1))


def _draw_left_out(drafts: Iterable[Draft], number: int) -> list[Draft]:
    by_filter = defaultdict[Reason, list[Draft]](list)
    for draft in sorted(drafts, key=lambda draft: hash_text(draft.id, 0)):
        by_filter[draft.reason].append(draft)
    turns = zip_longest(*(by_filter[reason] for reason in _JUDGED))
    return [draft for draft in chain.from_iterable(turns) if draft][:number]


def format_agreement(items: Sequence[ReviewItem], verdicts: Mapping[str, Verdict]) -> str:
    """A table of the verdicts by filter, and the share on which a person and the filters agree: of those that are asked they do
    where it is kept, edited or not, and of those that were left out where it is dropped."""
    counts = Counter[tuple[Reason, str]]()
    for item in items:
        if is_seen(item.question, verdicts):
            counts[item.left_out, verdicts[item.question.id].verdict] += 1
    if not counts:
        return f"none of {len(items)} questions has a verdict"
    rows = [f"{'':<24}{'keep':>6}{'edit':>6}{'drop':>6}"]
    for reason in ("", *_JUDGED):
        found = [counts[reason, verdict] for verdict in ("keep", "edit", "drop")]
        if any(found):
            name = f"left out as {reason}" if reason else "asked"
            rows.append(f"{name:<24}" + "".join(f"{number:>6}" for number in found))
    agreed = sum(number for (reason, verdict), number in counts.items() if bool(reason) == (verdict == "drop"))
    total = counts.total()
    rows.append(f"{total} of {len(items)} seen; person and filters agree on {agreed} ({agreed / total:.0%})")
    return "\n".join(rows)
