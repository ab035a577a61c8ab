"""What the process stage left of some questions, as the builders of training rows read it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from drag_ray.errors import DataError
from drag_ray.process.parts import TRAJECTORIES_DIR_NAME, TURNS_DIR_NAME
from drag_ray.types import ActionKind


@dataclass(frozen=True)
class ScoredPart:
    """All turns and trajectories of some questions, as `process.turns` makes them.

    Those with a hint are among them, unless it is the part `own`.
    """

    turns: pl.DataFrame
    trajectories: pl.DataFrame

    @cached_property
    def searches(self) -> pl.DataFrame:
        """The turns that search."""
        return self.turns.filter(pl.col("action") == ActionKind.SEARCH.value)

    @cached_property
    def own(self) -> "ScoredPart":
        """What the policy did by itself, without a hint."""
        return ScoredPart(self.turns.filter(~pl.col("hinted")), self.trajectories.filter(~pl.col("hinted")))

    def add_conversations(self, rows: pl.DataFrame) -> pl.DataFrame:
        """`rows` with the columns messages, num_opening_messages and cumulative_effort of their trajectories."""
        columns = ("trajectory_id", "messages", "num_opening_messages", "cumulative_effort")
        return rows.join(self.trajectories.select(columns), on="trajectory_id", how="left", maintain_order="left")


def list_parts(process_dir: Path) -> list[str]:
    """The file names of the parts.

    Raises:
        DataError: there is none.
    """
    names = sorted(path.name for path in (process_dir / TRAJECTORIES_DIR_NAME).glob("*.parquet"))
    if not names:
        raise DataError(f"{process_dir / TRAJECTORIES_DIR_NAME}: no part-*.parquet. Run: python jobs/process.py")
    return names


def read_part(process_dir: Path, name: str) -> ScoredPart:
    """The tables of one part.

    Raises:
        DataError: a file is missing or unreadable.
    """
    return ScoredPart(
        read_table(process_dir / TURNS_DIR_NAME / name),
        read_table(process_dir / TRAJECTORIES_DIR_NAME / name),
    )


def read_table(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """A table that the process stage wrote.

    Raises:
        DataError: the file is missing or unreadable.
    """
    try:
        return pl.read_parquet(path, columns=columns, glob=False)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Run: python jobs/process.py") from None
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: not a readable Parquet file ({error}). Run: python jobs/process.py") from error
