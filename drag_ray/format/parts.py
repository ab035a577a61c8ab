"""What the format stage does with one part: build the rows of every format, and check them once they are written."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from drag_ray.file_access import reading
from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import SHOWN_COLUMNS, Layout
from drag_ray.format.leaks import CHECKED_COLUMNS, RowChecker, find_leaks, screen_rows
from drag_ray.format.row_files import EncodedRows, encode_rows
from drag_ray.format.row_format import load_format
from drag_ray.format.rows import FormatName
from drag_ray.format.selection import is_target
from drag_ray.format.split import TRAIN, VALIDATION, WITHHELD
from drag_ray.format.tables import ScoredPart, read_part, read_table


@dataclass(frozen=True)
class FormatJob:
    """What is the same for all parts. `sides_path` is a table of question_id and side."""

    process_dir: Path
    sides_path: Path
    config: FormatConfig
    layout: Layout


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
    part = read_part(job.process_dir, part_name)
    sides = _read_sides(job, part)
    withheld = sides.filter(pl.col("side") == WITHHELD)
    part = ScoredPart(
        part.turns.join(withheld, on="question_id", how="anti", maintain_order="left"),
        part.trajectories.join(withheld, on="question_id", how="anti", maintain_order="left"),
    )
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
        clean = screen_rows(rows, leaks).join(sides, on="question_id", how="left", maintain_order="left")
        num_set_aside[name] = rows.height
        for side in (TRAIN, VALIDATION):
            table = job.layout.apply(clean.filter(pl.col("side") == side), row_format.schema, shown)
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
    checker = RowChecker(part, _read_sides(job, part), job.layout)
    num_rows = 0
    for path, place in places.items():
        with reading(path, "Run: python jobs/format.py"):
            written = pl.scan_parquet(path, glob=False)
            columns = [column for column in written.collect_schema() if column in CHECKED_COLUMNS]
            rows = written.select(columns).slice(place.start, len(place)).collect()
        checker.check(rows, path.stem, str(path), place.start)
        num_rows += rows.height
    return num_rows


def _read_sides(job: FormatJob, part: ScoredPart) -> pl.DataFrame:
    """The side of each question of a part."""
    return read_table(job.sides_path).join(part.trajectories.select("question_id"), on="question_id", how="semi")
