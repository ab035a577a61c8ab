"""What the format stage does with one part: build the rows of every format, and check them once they are written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import SHOWN_COLUMNS, Layout
from drag_ray.format.leaks import CHECKED_COLUMNS, PageChecker, RowChecker, find_leaks, screen_rows
from drag_ray.format.row_files import EncodedRows, encode_rows
from drag_ray.format.row_format import RowFormat, load_format
from drag_ray.format.rows import OF_PAGES, FormatName
from drag_ray.format.selection import is_target
from drag_ray.format.split import TRAIN, VALIDATION, WITHHELD
from drag_ray.format.tables import ScoredPart, read_part, read_table
from drag_ray.storage.file_access import reading


@dataclass(frozen=True)
class FormatJob:
    """What is the same for all parts. `sides_path` is a table of question_id and side; `index_dir` may be None (`ScoredPart`)."""

    process_dir: Path
    sides_path: Path
    config: FormatConfig
    layout: Layout
    index_dir: Path | None = None


@dataclass(frozen=True)
class FormattedPart:
    """The rows of one part by format and side; how many of each format were set aside; searches to train towards."""

    rows: dict[tuple[FormatName, str], EncodedRows]
    num_set_aside: dict[FormatName, int]
    num_searches: int
    num_targets: int


def format_part(job: FormatJob, part_name: str) -> FormattedPart:
    """Build the rows of every format from one part.

    Rows of withheld questions are left out, rows that leak or, with images hidden, teach nothing are set aside.
    """
    part = read_part(job.process_dir, part_name, job.index_dir)
    sides = _read_sides(job, part)
    part = part.leave_out(sides.filter(pl.col("side") == WITHHELD))
    leaks = find_leaks(part.trajectories)
    shown = part.trajectories.select("trajectory_id", *SHOWN_COLUMNS)
    encoded: dict[tuple[FormatName, str], EncodedRows] = {}
    num_set_aside: dict[FormatName, int] = {}
    for name in job.config.formats:
        row_format = load_format(name)
        taken = part.take(
            proposed=job.config.proposed and row_format.learns_from_proposed,
            hinted=job.config.hinted and row_format.learns_from_hinted,
        )
        rows = row_format.build_rows(taken, job.config)
        clean = rows if name in OF_PAGES else screen_rows(rows, leaks)
        clean = clean.join(sides, on="question_id", how="left", maintain_order="left")
        num_set_aside[name] = rows.height
        for side in (TRAIN, VALIDATION):
            of_side = clean.filter(pl.col("side") == side)
            table = to_table(of_side, row_format) if name in OF_PAGES else job.layout.apply(of_side, row_format.schema, shown)
            num_set_aside[name] -= table.num_rows
            encoded[name, side] = encode_rows(table)
    scored = part.take(proposed=job.config.proposed, hinted=job.config.hinted).turns.filter("is_scored")
    return FormattedPart(encoded, num_set_aside, scored.height, scored.filter(is_target(job.config)).height)


def check_part(job: FormatJob, part_name: str, places: dict[Path, range]) -> int:
    """Check for leaks what a part wrote: `places` says which rows of which files.

    Returns:
        How many rows were checked.

    Raises:
        DataError: a row leaks.
    """
    part = read_part(job.process_dir, part_name)
    sides = _read_sides(job, part)
    checker, pages = RowChecker(part, sides, job.layout), PageChecker(part, sides)
    num_rows = 0
    for path, place in places.items():
        with reading(path, "Run: python jobs/format.py"):
            written = pl.scan_parquet(path, glob=False)
            columns = [column for column in written.collect_schema() if column in CHECKED_COLUMNS]
            rows = written.select(columns).slice(place.start, len(place)).collect()
        (pages if path.parent.name in OF_PAGES else checker).check(rows, path.stem, str(path), place.start)
        num_rows += rows.height
    return num_rows


def to_table(rows: pl.DataFrame, row_format: RowFormat[Any]) -> pa.Table:
    """Rows that are no part of a conversation, in the columns of their format."""
    return rows.select(row_format.schema.names).to_arrow().cast(row_format.schema)


def _read_sides(job: FormatJob, part: ScoredPart) -> pl.DataFrame:
    """The side of each question of a part."""
    return read_table(job.sides_path).join(part.trajectories.select("question_id"), on="question_id", how="semi")
