"""Metadata of documents: columns of the user's, a row a file, beside the pages of an index, and filters on them.

A filter is a JSON object whose conditions all hold: `{"department": "sales", "date": {"gte": "2024-01-01"}, "tags": {"any":
["a", "b"]}}`. A cell that is empty meets none.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from drag_ray.errors import DataError, SearchIndexError
from drag_ray.search.config import ColumnType
from drag_ray.storage.file_access import reading

TABLE_NAME = "metadata.parquet"
FILE = "file"
"""The column that names the documents, as pages name their files."""
DTYPES: Mapping[ColumnType, Any] = {
    "text": pl.String,
    "number": pl.Float64,
    "date": pl.Datetime("us"),
    "boolean": pl.Boolean,
    "list": pl.List(pl.String),
}
"""Dates are in UTC, and lists are of texts."""
_OPERATORS: Mapping[ColumnType, tuple[str, ...]] = {
    "text": ("eq", "any"),
    "number": ("eq", "any", "gt", "gte", "lt", "lte"),
    "date": ("eq", "any", "gt", "gte", "lt", "lte"),
    "boolean": ("eq",),
    "list": ("eq", "any", "all"),
}
MAX_VALUES = 1_000
"""of a filter"""
_ACCESS = "drag_ray.access"
Filter = Mapping[str, Any]

EVERYTHING = "*"
"""The group of who may see every document, which no document names."""


class FilterError(DataError):
    """A filter that an index cannot be asked for."""


class Metadata:
    """The columns of the documents of an index. Safe to share between threads.

    Attributes:
        columns: their types, by their names.
        access_column: that of the groups that may see a document; empty where everybody may see all.

    Args:
        table: the column `file`, ascending, and the others in types of `DTYPES`.
        access_column: text or list.
    """

    def __init__(self, table: pl.DataFrame, access_column: str = "") -> None:
        self._table = table
        kinds: dict[Any, ColumnType] = {dtype: kind for kind, dtype in DTYPES.items()}
        self.columns: dict[str, ColumnType] = {name: kinds[dtype] for name, dtype in table.schema.items() if name != FILE}
        self.access_column = access_column

    @property
    def files(self) -> list[str]:
        """The documents, in order."""
        return self._table[FILE].to_list()

    def write(self, folder: Path) -> None:
        """Write the table into the folder of an index."""
        said = {_ACCESS: self.access_column}
        self._table.write_parquet(folder / TABLE_NAME, compression="zstd", metadata=said)

    def select(self, conditions: Filter, columns: Mapping[str, ColumnType]) -> np.ndarray:
        """The documents that meet all conditions: bool (documents,).

        Args:
            conditions: by columns, each a value, a list of which one is enough, or operators with theirs.
            columns: those that may be asked of, with their types.

        Raises:
            FilterError: there is no such column, or it is of another type; says which there are.
        """
        if sum(map(_count_values, conditions.values())) > MAX_VALUES:
            raise FilterError(f"the filter holds more than {MAX_VALUES:,} values, which is too many.")
        tests = [_build(name, columns, condition) for name, condition in conditions.items()]
        return self._evaluate(reduce(and_, tests, pl.lit(True)))

    def select_groups(self, groups: Collection[str]) -> np.ndarray:
        """The documents that one of these groups may see: bool (documents,); those without a group are not among them."""
        column = pl.col(self.access_column)
        wanted = pl.Series(sorted(groups), dtype=pl.String).implode()
        is_list = self.columns[self.access_column] == "list"
        return self._evaluate(column.list.eval(pl.element().is_in(wanted)).list.any() if is_list else column.is_in(wanted))

    def _evaluate(self, test: pl.Expr) -> np.ndarray:
        found = self._table.select(pl.col(FILE), test.fill_null(False).alias("is_met"))
        return found["is_met"].to_numpy().astype(bool)


def read_metadata(folder: Path) -> Metadata | None:
    """The metadata in the folder of an index; None where it has none.

    Raises:
        SearchIndexError: it is not what was written.
        ArtifactError: it cannot be read.
    """
    path = folder / TABLE_NAME
    if not path.exists():
        return None
    with reading(path):
        table, access_column = pl.read_parquet(path), pl.read_parquet_metadata(path).get(_ACCESS, "")
    unknown = [dtype for name, dtype in table.schema.items() if name != FILE and dtype not in DTYPES.values()]
    if table.columns[:1] != [FILE] or unknown or (access_column and access_column not in table.columns):
        raise SearchIndexError(f"{path}: not a table of metadata. Build the index again: python jobs/index.py --verify")
    return Metadata(table, access_column)


def read_access_column(folder: Path) -> str:
    """The column of the groups that may see a document of an index; empty where everybody may. Raises what `read_metadata`
    does."""
    metadata = read_metadata(folder)
    return metadata.access_column if metadata else ""


def parse_date(text: str) -> datetime:
    """A day or a time as ISO 8601 spells it, in UTC without a zone. ValueError where it is none."""
    parsed = datetime.fromisoformat(text.strip())
    return parsed.astimezone(UTC).replace(tzinfo=None) if parsed.tzinfo else parsed


def describe_columns(columns: Mapping[str, ColumnType]) -> str:
    """The columns with their types, in a phrase."""
    return ", ".join(f"{name} ({kind})" for name, kind in columns.items()) or "no column"


def _count_values(condition: Any) -> int:
    parts = list(condition.values()) if isinstance(condition, Mapping) else [condition]
    return sum(len(part) if isinstance(part, list) else 1 for part in parts)


def _build(name: str, columns: Mapping[str, ColumnType], condition: Any) -> pl.Expr:
    """The test of one column."""
    if name not in columns:
        raise FilterError(f"filter: the index has no column {name[:80]!r}, expected one of: {describe_columns(columns)}.")
    kind = columns[name]
    if not isinstance(condition, Mapping):
        condition = {"any" if isinstance(condition, list) and kind != "boolean" else "eq": condition}
    unknown = [operator for operator in condition if operator not in _OPERATORS[kind]]
    if unknown or not condition:
        got = f"got {str(unknown[0])[:80]!r}" if unknown else "got none"
        expected = f"expected {', '.join(_OPERATORS[kind])}"
        raise FilterError(f"filter: {name[:80]!r} is a column of the type {kind}: {got}, {expected} as the operators.")
    tests = [_compare(name, kind, operator, value) for operator, value in condition.items()]
    return reduce(and_, tests)


def _compare(name: str, kind: ColumnType, operator: str, value: Any) -> pl.Expr:
    column = pl.col(name)
    if operator in ("any", "all"):
        if not isinstance(value, list):
            raise FilterError(f"filter: {name[:80]!r}: {operator} takes a list, got {type(value).__name__}.")
        wanted = _to_series(name, kind, value)
        if kind != "list":
            return column.is_in(wanted.implode())
        found = column.list.unique().list.eval(pl.element().is_in(wanted.implode()))
        return found.list.any() if operator == "any" else found.list.sum() == wanted.n_unique()
    [wanted] = _to_series(name, kind, [value])
    if kind == "list":
        return column.list.contains(wanted)
    comparisons = {"eq": column.eq, "gt": column.gt, "gte": column.ge, "lt": column.lt, "lte": column.le}
    return comparisons[operator](pl.lit(wanted, dtype=DTYPES[kind]))


def _to_series(name: str, kind: ColumnType, values: Sequence[Any]) -> pl.Series:
    dtype: Any = pl.String if kind == "list" else DTYPES[kind]
    return pl.Series([_to_value(name, kind, value) for value in values], dtype=dtype)


def _to_value(name: str, kind: ColumnType, value: Any) -> Any:
    expected: dict[ColumnType, tuple[type, ...]] = {"number": (int, float), "boolean": (bool,)}
    try:
        if type(value) not in expected.get(kind, (str,)):
            raise ValueError("of another type")
        str(value).encode()  # a lone surrogate is none
        value = parse_date(value) if kind == "date" else float(value) if kind == "number" else value
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("not finite")
    except (ValueError, OverflowError):
        hint = {"date": "an ISO date such as 2024-01-31", "list": "a text", "text": "a text"}.get(kind, f"a {kind}")
        got = f"{type(value).__name__} {str(value)[:40]!r}"
        raise FilterError(f"filter: {name[:80]!r} is a column of the type {kind}: got {got}, expected {hint}.") from None
    return value
