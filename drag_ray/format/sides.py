"""The table that the format stage leaves of its questions: on which side each is."""

from pathlib import Path

import pyarrow.parquet as pq

from drag_ray.storage.file_access import reading

SIDES_NAME = "questions.parquet"
"""A table of question_id and side (see `split`) in the folder of the stage."""


def read_side(format_dir: Path, side: str) -> set[str]:
    """The ids of the questions on a side.

    Raises:
        ArtifactError: the table is missing or unreadable.
    """
    path = format_dir / SIDES_NAME
    with reading(path, "Run: python jobs/format.py"):
        rows = pq.ParquetFile(path).read(columns=["question_id", "side"]).to_pylist()
    return {row["question_id"] for row in rows if row["side"] == side}
