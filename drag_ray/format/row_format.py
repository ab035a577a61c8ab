"""A format of training rows: all that the stage, the dataset's card and the exports know of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import polars as pl
import pyarrow as pa

from drag_ray.format import rows
from drag_ray.format.columns import Example, Row, to_schema
from drag_ray.format.config import FormatConfig
from drag_ray.format.rows import FormatName
from drag_ray.format.tables import ScoredPart
from drag_ray.variants import load_variant

RowT = TypeVar("RowT", bound=Row)


@dataclass(frozen=True)
class RowFormat(Generic[RowT]):
    """A row format, as a module of `rows` declares it in FORMAT.

    Attributes:
        row: the type of its rows.
        summary: what a row is, what it is for and which columns matter, for the dataset's card.
        build_rows: the rows of one part, with the columns of `row`.
        to_example: what a row teaches, for other trainers.
        learns_from_proposed: it teaches or compares queries by themselves, so that those of baselines are of use.
        learns_from_hinted: it teaches queries by themselves, so that rollouts with a hint are of use. What else was said with a
            hint in view is no sample of the policy, and may speak of the hint.
    """

    row: type[RowT]
    summary: str
    build_rows: Callable[[ScoredPart, FormatConfig], pl.DataFrame]
    to_example: Callable[[RowT], Example]
    learns_from_proposed: bool = False
    learns_from_hinted: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows before the layout adds to them."""
        return to_schema(self.row)


def load_format(name: FormatName) -> RowFormat[Any]:
    """The format of a name."""
    return load_variant(rows, name).FORMAT
