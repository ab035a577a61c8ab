"""What the format stage does with one part: build the rows of every kind, and check them once they are written."""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.format import dpo, kto, rejection, reward, rl_steps, sft_context, sft_query, sft_trajectory
from drag_ray.format.config import FormatConfig, FormatName
from drag_ray.format.layout import Layout
from drag_ray.format.leaks import CHECKED_COLUMNS, RowChecker, find_leaks, screen_rows
from drag_ray.format.selection import is_target
from drag_ray.format.split import TRAIN, VALIDATION, WITHHELD
from drag_ray.format.tables import ScoredPart, read_part, read_table

BUILDERS: dict[FormatName, ModuleType] = {
    "sft_query": sft_query,
    "sft_trajectory": sft_trajectory,
    "sft_context": sft_context,
    "rejection": rejection,
    "dpo": dpo,
    "kto": kto,
    "reward": reward,
    "rl_steps": rl_steps,
}
_LEARN_FROM_HINTED = ("sft_query", "sft_context")
"""Kinds that teach a query by itself. What was said with a hint in view is no sample of the policy, and may speak of the hint."""
SIDES_NAME = "questions.parquet"


@dataclass(frozen=True)
class FormatJob:
    """What is the same for all parts. `sides_path` is a table of question_id and side."""

    process_dir: Path
    sides_path: Path
    config: FormatConfig
    layout: Layout


@dataclass(frozen=True)
class FormattedPart:
    """The rows of one part: for each kind and side a table; how many of each kind were set aside; searches to train towards."""

    tables: dict[tuple[FormatName, str], pa.Table]
    num_set_aside: dict[FormatName, int]
    num_searches: int
    num_targets: int


def format_part(job: FormatJob, name: str) -> FormattedPart:
    """Build the rows of every kind from one part.  Rows of withheld questions are left out, rows that leak are set aside."""
    part = read_part(job.process_dir, name)
    sides = read_table(job.sides_path)
    withheld = sides.filter(pl.col("side") == WITHHELD)
    part = ScoredPart(
        part.turns.join(withheld, on="question_id", how="anti", maintain_order="left"),
        part.trajectories.join(withheld, on="question_id", how="anti", maintain_order="left"),
    )
    leaks = find_leaks(part.trajectories)
    protocols = part.trajectories.select("trajectory_id", "protocol")
    tables, num_set_aside = {}, {}
    for kind in job.config.formats:
        builder = BUILDERS[kind]
        rows = builder.build_rows(part if job.config.hinted and kind in _LEARN_FROM_HINTED else part.own, job.config)
        clean = screen_rows(rows, leaks).join(sides, on="question_id", how="left", maintain_order="left")
        num_set_aside[kind] = rows.height - clean.height
        for side in (TRAIN, VALIDATION):
            tables[kind, side] = job.layout.apply(clean.filter(pl.col("side") == side), builder.SCHEMA, protocols)
    searches = (part if job.config.hinted else part.own).searches
    return FormattedPart(tables, num_set_aside, searches.height, searches.filter(is_target(job.config)).height)


def check_part(job: FormatJob, name: str, row_groups: dict[Path, int]) -> int:
    """Check for leaks what a part wrote: `row_groups` says in which row group of which file.

    Returns:
        How many rows were checked.

    Raises:
        DataError: a row leaks.
    """
    checker = RowChecker(read_part(job.process_dir, name), read_table(job.sides_path), job.layout)
    num_rows = 0
    for path, row_group in row_groups.items():
        with pq.ParquetFile(path) as file:
            names = [name for name in file.schema_arrow.names if name in CHECKED_COLUMNS]
            rows = pl.from_arrow(file.read_row_group(row_group, names))
        assert isinstance(rows, pl.DataFrame)
        checker.check(rows, path.stem, f"{path} (row group {row_group + 1})")
        num_rows += rows.height
    return num_rows
