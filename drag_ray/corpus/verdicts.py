"""Verdicts of people on questions: kept, worded anew, or dropped."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from drag_ray.errors import ConfigError, DataError
from drag_ray.storage.appended_lines import read_lines
from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.types import Question


@dataclass(frozen=True, slots=True)
class Verdict:
    """A person's word on a question.

    Attributes:
        id: of the question.
        asked: the question as it was shown: a verdict counts for no other wording.
        verdict: keep it as it is, with another wording (edit), or drop it.
        question: the other wording.
        answer: its answer; empty for those that the question has.
    """

    id: str
    asked: str
    verdict: Literal["keep", "edit", "drop"]
    question: str = ""
    answer: str = ""


VERDICT = TypeAdapter(Verdict)


def read_verdicts(path: Path) -> dict[str, Verdict]:
    """The last verdict on each question, by its id; none where there is no file. Raises ArtifactError: the file cannot be
    read."""
    return {verdict.id: verdict for verdict in read_lines(path, VERDICT)}


def is_seen(question: Question, verdicts: Mapping[str, Verdict]) -> bool:
    """True if there is a verdict on the question as it is worded."""
    return question.id in verdicts and verdicts[question.id].asked == question.question


def keep_reviewed(questions: Iterable[Question], path: Path) -> list[Question]:
    """The questions that a person has kept, as he has worded them.

    One with another wording gets another id, since replies to the first wording are no replies to it.

    Raises:
        ConfigError: there is no such file.
        DataError: it keeps none of the questions.
        ArtifactError: it cannot be read.
    """
    if not path.is_file():
        raise ConfigError(
            f"evaluate.verdicts {str(path)!r}: no such file. `drag-ray review RUN` writes RUN/review/verdicts.jsonl."
        )
    verdicts = read_verdicts(path)
    asked = list(questions)
    seen = [question for question in asked if is_seen(question, verdicts)]
    kept = [_word(question, verdicts[question.id]) for question in seen if verdicts[question.id].verdict != "drop"]
    if not kept:
        raise DataError(
            f"{path}: of {len(asked)} test questions {len(seen)} have a verdict, and none is kept. Look at more of them: "
            "drag-ray review RUN"
        )
    return kept


def _word(question: Question, verdict: Verdict) -> Question:
    if verdict.verdict == "keep":
        return question
    answers = (verdict.answer,) if verdict.answer else question.answers
    worded = compute_fingerprint(verdict.question, answers)[:8]
    return replace(question, id=f"{question.id}-{worded}", question=verdict.question, answers=answers)
