"""On which side each question is: training, validation, or neither because evaluation asks for the same; and the table of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from drag_ray.corpus.near_duplicates import NO_NEAR_DUPLICATES, NearDuplicates
from drag_ray.corpus.split import assign_splits, find_overlaps
from drag_ray.format.config import FormatConfig
from drag_ray.storage.file_access import reading
from drag_ray.types import Question

TRAIN, VALIDATION, WITHHELD = "train", "validation", "withheld"


def assign_sides(
    questions: Sequence[Question],
    evaluation: Iterable[Question],
    config: FormatConfig,
    near_duplicates: NearDuplicates = NO_NEAR_DUPLICATES,
) -> dict[str, str]:
    """The side of each question id.

    A question is withheld if it overlaps with one of `evaluation`: it shares its text or an evidence page, has one that nearly
    duplicates one of its own, or with split_by="document" shares an evidence file.  The others are split so that what shares
    an evidence page or nearly duplicates one, shares a text or a group stays together (and with "document" what shares a
    file), by the seed and the ids alone: the same questions always split the same way.

    Args:
        questions: all questions with rows; their `split` is not looked at.
        evaluation: the questions that evaluation asks.
        near_duplicates: those among the evidence of both.
    """
    overlaps = find_overlaps(questions, evaluation, config.split_by, near_duplicates)
    free = [replace(question, split="") for question in questions if question.id not in overlaps]
    fraction = config.validation_fraction
    if fraction and len(free) > 1:
        # One question at least, and never all of them.
        fraction = min(max(fraction, 1 / len(free)), (len(free) - 1) / len(free))
    sides = {question.id: WITHHELD for question in questions}
    test_fraction = fraction if len(free) > 1 else 0.0
    for question in assign_splits(free, test_fraction, config.seed, config.split_by, near_duplicates):
        sides[question.id] = VALIDATION if question.split == "test" else TRAIN  # "test" is the part that is held out here
    return sides


def assign_unlabelled(
    unlabelled: Sequence[Question],
    labelled: Sequence[Question],
    sides: Mapping[str, str],
    evaluation: Iterable[Question],
    config: FormatConfig,
) -> dict[str, str]:
    """The side of each question id without evidence: training, unless evaluation or validation asks the same. The sides of the
    others are as they would be without these.

    Args:
        unlabelled: questions without evidence.
        labelled: the others, with rows.
        sides: of these.
        evaluation: the questions that evaluation asks.
        config: of the stage.
    """
    validation = [question for question in labelled if sides[question.id] == VALIDATION]
    overlaps = find_overlaps(unlabelled, [*evaluation, *validation], config.split_by, NO_NEAR_DUPLICATES)
    groups = {question.group for question in validation if question.group}
    return {question.id: WITHHELD if question.id in overlaps or question.group in groups else TRAIN for question in unlabelled}


SIDES_NAME = "questions.parquet"
"""A table of question_id and side (see `split`) in the folder of the stage."""


def read_side(format_dir: Path, side: str) -> set[str]:
    """The ids of the questions on a side. Raises ArtifactError where the table is missing or unreadable."""
    path = format_dir / SIDES_NAME
    with reading(path, "Run: python jobs/format.py"):
        rows = pq.ParquetFile(path).read(columns=["question_id", "side"]).to_pylist()
    return {row["question_id"] for row in rows if row["side"] == side}
