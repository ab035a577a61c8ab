"""The user's table of what is said of documents: a row a document, which pages call `file`, and any columns.

A column is text, number, date, boolean or list (of texts): as `corpus.metadata_types` says, or what all of its cells are. In a
CSV file every cell is a text, so that `true`, `12` and `2024-01-31` are read as what they look like, and a list has `;` between
its texts, where the types say that it is one.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import polars as pl

from drag_ray.corpus.problems import Problem
from drag_ray.corpus.records import Record, read_records
from drag_ray.errors import DataError
from drag_ray.search.config import ColumnType
from drag_ray.search.metadata import DTYPES, EVERYTHING, FILE, Metadata, describe_columns, parse_date
from drag_ray.search.page_table import FileNames
from drag_ray.storage.file_access import reading

_BOOLEANS = {"true": True, "false": False}
_KINDS: Mapping[type, ColumnType] = {
    **{bool: "boolean", str: "text", list: "list", date: "date", datetime: "date"},
    **{int: "number", float: "number", Decimal: "number"},
}


class _Cell(NamedTuple):
    """A value of a column: where it is first, and how often."""

    place: str
    value: Any
    number: int


class _Column:
    """The cells of a column that are not empty. A value that comes again is kept once: of a million cells few differ."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._codes: dict[Any, int] = {}
        self._rows, self._cells = array("q"), array("q")

    def add(self, row: int, value: Any) -> None:
        """Add the cell of a row."""
        key = value if type(value) is str else (type(value), repr(value))  # 1 and True are equal
        code = self._codes.setdefault(key, len(self.values))
        if code == len(self.values):
            self.values.append(value)
        self._rows.append(row)
        self._cells.append(code)

    def list_cells(self, locate: Callable[[int], str]) -> list[_Cell]:
        """The values."""
        _, first, numbers = np.unique(self._cells, return_index=True, return_counts=True)
        found = zip(first, self.values, numbers.tolist(), strict=True)
        return [_Cell(locate(self._rows[place]), value, number) for place, value, number in found]

    def list_rows(self, code: int) -> list[int]:
        """The rows that hold a value, by its place among all."""
        return np.asarray(self._rows)[np.asarray(self._cells) == code].tolist()

    def spread(self, values: pl.Series, num_rows: int) -> pl.Series:
        """A column of so many rows, with a value of the same place in place of each."""
        codes = np.full(num_rows, len(values))
        codes[np.asarray(self._rows)] = self._cells
        return pl.concat([values, pl.Series(values.name, [None], values.dtype)]).gather(codes)


def read_document_metadata(
    path: Path, files: Sequence[str], types: Mapping[str, ColumnType], access_column: str = ""
) -> tuple[Metadata, list[Problem]]:
    """The metadata of files, and what of the table was set aside: rows of other documents, damaged rows and cells that are none
    of their column's type. Files without a row have empty cells, and are named as well.

    Args:
        path: a `.csv`, `.jsonl`, `.jsonl.gz` or `.parquet` file.
        types: of columns, by their names.
        access_column: that of the groups that may see a document, if there is one.

    Raises:
        DataError: the file or its columns cannot be read, cells of a column are of several types, or a document has two rows.
    """
    ordered = sorted(files)
    found, lines, problems = _read_columns(path, ordered)
    problems += [
        Problem(file, f"has no row in {path}: no filter finds it", "undescribed_document")
        for file, line in zip(ordered, lines, strict=True)
        if not line
    ]
    _check_names(path, [*found], types, access_column)
    columns: dict[str, pl.Series] = {}
    for name, column in found.items():
        cells = column.list_cells(lambda row: f"{path}:{lines[row]}")
        kind = types.get(name) or _choose_type(name, cells, path.suffix.lower() == ".csv", name == access_column)
        values = [_convert(kind, cell.value) for cell in cells]
        for code, value in enumerate(values):
            if isinstance(value, _Broken):
                values[code] = None
                reason = f"the column {name!r} is a {kind}, got {value.got}; the cell is left empty"
                problems += [Problem(f"{path}:{lines[row]}", reason, "broken_value") for row in column.list_rows(code)]
        columns[name] = column.spread(pl.Series(name, values, dtype=DTYPES[kind]), len(ordered))
    if access_column:
        _check_groups(path, columns[access_column])
    return Metadata(pl.DataFrame({FILE: pl.Series(ordered, dtype=pl.String), **columns}), access_column), problems


def _read_columns(path: Path, files: Sequence[str]) -> tuple[dict[str, _Column], Sequence[int], list[Problem]]:
    """The columns, by their names, the line of each file, 0 for none, and a problem for each damaged row and each of a file that
    is not there."""
    names, ranks = FileNames(files), {file: rank for rank, file in enumerate(files)}
    columns, lines, problems = dict[str, _Column](), array("q", bytes(8 * len(files))), list[Problem]()
    for place, row in _read_csv(path) if path.suffix.lower() == ".csv" else read_records(path, _check_row):
        if isinstance(row, Problem):
            problems.append(row)
            continue
        given = row.pop(FILE)
        cells = [(columns.setdefault(name, _Column()), value) for name, value in row.items()]
        file = names.find(given)
        if file is None:
            near = names.guess(given)
            meant = f"; {near!r} may be meant" if near else ""
            problems.append(Problem(place, f"{given!r} has no page in the index{meant}", "unknown_document"))
            continue
        rank = ranks[file]
        if lines[rank]:
            raise DataError(f"corpus.metadata: {place} and {path}:{lines[rank]} are both of {file!r}. Leave one of the rows.")
        lines[rank] = int(place.rpartition(":")[2])
        for column, value in cells:
            if value not in (None, ""):
                column.add(rank, value)
    return columns, lines, problems


def _read_csv(path: Path) -> Iterator[tuple[str, Record | Problem]]:
    """As `read_records`."""
    if not path.is_file():
        raise DataError(f"corpus.metadata {path}: no such file, or no regular one. Check the path.")
    with reading(path, "Write it as UTF-8 with commas, a cell with a comma or a line break in quotes."):
        table = pl.read_csv(path, infer_schema=False)
        header = pl.read_csv(path, infer_schema=False, has_header=False, n_rows=1).row(0)
    names = [(name or "").strip() for name in header]
    if FILE not in names:
        raise DataError(f"corpus.metadata {path}: has no column {FILE!r} with the documents, only {', '.join(names)[:300]}.")
    if twice := [name for name, number in Counter(names).items() if number > 1 or not name]:
        raise DataError(f"corpus.metadata {path}: columns need names, each its own; got {twice[0]!r}. Rename or remove it.")
    table.columns = names
    for number, row in enumerate(table.iter_rows(named=True), start=2):
        cells = {name: value.strip() if value else None for name, value in row.items()}
        place = f"{path}:{number}"
        yield place, cells if cells[FILE] else Problem(place, f"has no {FILE!r}", "broken_record")


def _check_row(record: Record) -> Record:
    if not isinstance(record.get(FILE), str) or not record[FILE]:
        raise DataError(f"has no {FILE!r} that names a document")
    if broken := [name for name in record if not _can(_check_text, name)]:
        raise DataError(f"names a column {broken[0]!r:.80}, which holds half of a surrogate pair")
    return record


def _check_names(path: Path, names: Sequence[str], types: Mapping[str, ColumnType], access_column: str) -> None:
    for option, wanted in (("metadata_types", [*types]), ("access_column", [access_column] if access_column else [])):
        if unknown := [name for name in wanted if name not in names]:
            raise DataError(f"corpus.{option}: {path} has no column {unknown[0]!r}, only {', '.join(names)[:300] or FILE}.")
    if patterns := [name for name in names if name == "*" or (name.startswith("^") and name.endswith("$"))]:
        raise DataError(
            f"corpus.metadata {path}: {patterns[0]!r} would be read as a pattern of columns' names. Rename the column."
        )


def _choose_type(name: str, cells: Sequence[_Cell], is_csv: bool, is_access: bool) -> ColumnType:
    """The type of all cells. Raises DataError: there are several."""
    if is_access:
        return "list" if any(isinstance(cell.value, list) for cell in cells) else "text"
    kinds: dict[ColumnType, _Cell] = {_name_type(name, cell): cell for cell in cells}
    if len(kinds) > 1:
        (first, one), (second, other), *_ = kinds.items()
        raise DataError(
            f"corpus.metadata: the column {name!r} holds a {first} ({one.place}) and a {second} ({other.place}). Correct it, or "
            f"say what it is: --corpus.metadata-types '[\"{name}={first}\"]'."
        )
    kind = next(iter(kinds), None)
    if kind is None or kind != "text":
        return kind or "text"
    looks: dict[ColumnType, Callable[[str], Any]] = {"date": parse_date}
    if is_csv:
        looks = {"boolean": _parse_boolean, "number": float, **looks}
    for look, parse in looks.items():
        if _looks_so(name, cells, look, parse):
            return look
    return "text"


def _name_type(name: str, cell: _Cell) -> ColumnType:
    kind = _KINDS.get(type(cell.value))
    if kind is None:
        raise DataError(
            f"corpus.metadata: {cell.place}, {name!r}: got a {type(cell.value).__name__}, expected one of "
            f"{', '.join(get_args(ColumnType))}. Leave the column out, or write it as one of these."
        )
    return kind


def _looks_so(name: str, cells: Sequence[_Cell], kind: ColumnType, parse: Callable[[str], Any]) -> bool:
    """True if all texts are of another type. DataError where most are, which is likely to be meant."""
    broken = [cell for cell in cells if not _can(parse, cell.value)]
    if broken and 2 * sum(cell.number for cell in broken) < sum(cell.number for cell in cells):
        raise DataError(
            f"corpus.metadata: {broken[0].place}, {name!r}: {str(broken[0].value)[:80]!r} is no {kind}, as other cells of the "
            f"column are. Correct it, or say --corpus.metadata-types '[\"{name}={kind}\"]' to set such cells aside, or "
            f"'[\"{name}=text\"]'."
        )
    return not broken


def _can(parse: Callable[[str], Any], text: str) -> bool:
    try:
        parse(text)
    except (ValueError, OverflowError):
        return False
    return True


def _parse_boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(f"{text[:80]!r} is neither true nor false")
    return _BOOLEANS[text.lower()]


class _Broken(NamedTuple):
    got: str


def _convert(kind: ColumnType, value: Any) -> Any:
    """A value as its column's type, or what it is instead."""
    try:
        return _TO_TYPE[kind](value)
    except (ValueError, TypeError, OverflowError):
        return _Broken(f"{type(value).__name__} {str(value)[:80]!r}")


def _to_text(value: Any) -> str:
    if not isinstance(value, str | int | float | Decimal):
        raise TypeError("no text")
    return _check_text(str(value))


def _check_text(text: str) -> str:
    """The text. ValueError where it holds half of a surrogate pair, which no table takes."""
    text.encode()
    return text


def _to_number(value: Any) -> float | None:
    if isinstance(value, bool):
        raise TypeError("a boolean")
    number = float(value)
    if number in (float("inf"), -float("inf")):
        raise ValueError("infinite")
    return None if number != number else number


def _to_date(value: Any) -> datetime:
    return parse_date(value if isinstance(value, str) else value.isoformat() if isinstance(value, date) else "")


def _to_boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else _parse_boolean(str(value))


def _to_list(value: Any) -> list[str]:
    texts = [part.strip() for part in value.split(";")] if isinstance(value, str) else list(value)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a list of other things than texts")
    return [_check_text(text) for text in dict.fromkeys(texts) if text]


_TO_TYPE: Mapping[ColumnType, Callable[[Any], Any]] = {
    "text": _to_text,
    "number": _to_number,
    "date": _to_date,
    "boolean": _to_boolean,
    "list": _to_list,
}


def _check_groups(path: Path, column: pl.Series) -> None:
    groups = column.explode() if column.dtype == DTYPES["list"] else column
    if (groups == EVERYTHING).any():
        raise DataError(
            f"corpus.access_column {column.name!r}: {path} holds {EVERYTHING!r}, which in a file of keys stands for all "
            "documents. Name the groups that may see the document."
        )


def describe(metadata: Metadata) -> str:
    """The columns, in a line of a log."""
    limited = f"; {metadata.access_column} says which groups may see a document" if metadata.access_column else ""
    return f"metadata of documents: {describe_columns(metadata.columns)}{limited}"
