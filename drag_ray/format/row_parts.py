"""One part of the format stage: builds the rows of every format, and checks them once they are written.

Files are written part by part, so that memory does not grow with the number of rows.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import SHOWN_COLUMNS, Layout
from drag_ray.format.leaks import CHECKED_COLUMNS, PageChecker, RowChecker, find_leaks, screen_rows
from drag_ray.format.row_format import RowFormat, load_format
from drag_ray.format.rows import OF_PAGES, FormatName
from drag_ray.format.selection import is_target
from drag_ray.format.split import TRAIN, VALIDATION, WITHHELD
from drag_ray.format.tables import ScoredPart, read_part, read_table
from drag_ray.storage.artifacts import whole_or_absent
from drag_ray.storage.file_access import reading
from drag_ray.types import Question


@dataclass(frozen=True)
class EncodedRows:
    """Rows of a format: as a table, and as the bytes of lines of JSON, one object a row."""

    table: pa.Table
    lines: pa.Buffer


def encode_rows(table: pa.Table) -> EncodedRows:
    """The rows of a table with their lines."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    lines = frame.select(pl.concat_str(pl.struct(pl.all()).struct.json_encode(), pl.lit("\n"))).to_series()
    # Arrow has the texts of a column one after the other, which is the file.
    _, _, text = lines.to_arrow().buffers()
    return EncodedRows(table, text)


class RowFiles:
    """`<side>.parquet` and `<side>.jsonl` of one format. Use it as a context manager; both are there at its end or neither.

    Attributes:
        num_rows: rows written so far.
        parts: of each part that wrote rows, in order, the places of its rows; each has a Parquet row group of its own.
    """

    def __init__(self, folder: Path, side: str, schema: pa.Schema) -> None:
        self.parquet_path = folder / f"{side}.parquet"
        self.num_rows = 0
        self.parts: dict[str, range] = {}
        self._jsonl_path = folder / f"{side}.jsonl"
        self._schema = schema
        self._open_files = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:  # which closes what is open where the next cannot be opened
            parquet_scratch = opened.enter_context(whole_or_absent(self.parquet_path))
            jsonl_scratch = opened.enter_context(whole_or_absent(self._jsonl_path))
            self._parquet = opened.enter_context(pq.ParquetWriter(parquet_scratch, self._schema, compression="zstd"))
            self._jsonl = opened.enter_context(jsonl_scratch.open("wb"))
            self._open_files = opened.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open_files.__exit__(*exception)

    def write(self, rows: EncodedRows, part: str) -> None:
        """Append the rows of a part."""
        num_rows = rows.table.num_rows
        if not num_rows:
            return
        self._parquet.write_table(rows.table, row_group_size=num_rows)
        self._jsonl.write(rows.lines)
        self.parts[part] = range(self.num_rows, self.num_rows + num_rows)
        self.num_rows += num_rows


@dataclass(frozen=True)
class FormatJob:
    """The job of all parts. `sides_path` is a table of question_id and side; `index_dir` and `embed_dir` may be None
    (`ScoredPart`)."""

    process_dir: Path
    sides_path: Path
    config: FormatConfig
    layout: Layout
    index_dir: Path | None = None
    embed_dir: Path | None = None


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
    part = read_part(job.process_dir, part_name, job.index_dir, job.embed_dir)
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


def format_questions(job: FormatJob, questions: Sequence[Question]) -> FormattedPart:
    """Build the rows of pages for questions without evidence, which a teacher is to score."""
    part = ScoredPart.of_questions(questions, job.index_dir, job.embed_dir)
    sides = _read_sides(job, part)
    part = part.leave_out(sides.filter(pl.col("side") == WITHHELD))
    encoded: dict[tuple[FormatName, str], EncodedRows] = {}
    for name in OF_PAGES:
        row_format = load_format(name)
        rows = row_format.build_rows(part, job.config).join(sides, on="question_id", how="left", maintain_order="left")
        for side in (TRAIN, VALIDATION):
            encoded[name, side] = encode_rows(to_table(rows.filter(pl.col("side") == side), row_format))
    return FormattedPart(encoded, {}, 0, 0)


def check_part(job: FormatJob, part_name: str, places: dict[Path, range]) -> int:
    """Check for leaks what a part wrote: `places` says which rows of which files. Returns how many rows were checked. Raises
    DataError where a row leaks."""
    part = read_part(job.process_dir, part_name)
    sides = _read_sides(job, part)
    return _check_places(places, PageChecker(part, sides), RowChecker(part, sides, job.layout))


def check_questions(job: FormatJob, questions: Sequence[Question], places: dict[Path, range]) -> int:
    """Check what `format_questions` wrote, as `check_part` does."""
    part = ScoredPart.of_questions(questions)
    return _check_places(places, PageChecker(part, _read_sides(job, part)))


def _check_places(places: dict[Path, range], pages: PageChecker, turns: RowChecker | None = None) -> int:
    num_rows = 0
    for path, place in places.items():
        with reading(path, "Run: python jobs/format.py"):
            written = pl.scan_parquet(path, glob=False)
            columns = [column for column in written.collect_schema() if column in CHECKED_COLUMNS]
            rows = written.select(columns).slice(place.start, len(place)).collect()
        checker = pages if turns is None or path.parent.name in OF_PAGES else turns
        checker.check(rows, path.stem, str(path), place.start)
        num_rows += rows.height
    return num_rows


def to_table(rows: pl.DataFrame, row_format: RowFormat[Any]) -> pa.Table:
    """Rows that are no part of a conversation, in the columns of their format."""
    return rows.select(row_format.schema.names).to_arrow().cast(row_format.schema)


def _read_sides(job: FormatJob, part: ScoredPart) -> pl.DataFrame:
    """The side of each question of a part."""
    return read_table(job.sides_path).join(part.trajectories.select("question_id"), on="question_id", how="semi")
