"""The table that the format stage leaves of its questions: on which side each is."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.errors import DataError

SIDES_NAME = "questions.parquet"
"""A table of question_id and side (see `split`) in the folder of the stage."""


def read_side(format_dir: Path, side: str) -> set[str]:
    """The ids of the questions on a side.

    Raises:
        DataError: the table is missing or unreadable.
    """
    path = format_dir / SIDES_NAME
    try:
        rows = pq.read_table(path, columns=["question_id", "side"]).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: no readable table of question_id and side ({error}). Run: python jobs/format.py") from error
    return {row["question_id"] for row in rows if row["side"] == side}
