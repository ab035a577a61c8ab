"""Records of a JSONL or Parquet file one by one, with their place; what cannot be read is set aside with a reason."""

import gzip
import io
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.corpus.problems import Problem, read_one
from drag_ray.corpus.text import to_encodable
from drag_ray.errors import DataError, PageZeroError
from drag_ray.storage.json_text import parse_json

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
FILE_COLUMNS = ("file", "document")
PAGE_COLUMNS = ("page_number", "page")
"""The spellings of a page's file and number, of which the first that is set counts."""
_BATCH_ROWS = 1_024

Record = dict[str, Any]
T = TypeVar("T")


def read_records(path: Path, parse: Callable[[Record], T], columns: Collection[str] = ()) -> Iterator[tuple[str, T | Problem]]:
    """(place, result of `parse` or problem) for each line of a JSONL file or each row of a Parquet file.

    Whatever reading or parsing a record raises sets aside this record alone. Where a compressed file, a row group or the
    whole file is damaged, one problem stands for the rest of it. Blank lines are passed over, and NaN is null. Places are
    `file:line`, from 1.

    Args:
        path: a `.jsonl`, `.jsonl.gz` or `.parquet` file.
        parse: makes what is wanted of a record; raises DataError with the reason if it is none.
        columns: those of a Parquet file that are read, as far as they are there; all by default.

    Raises:
        DataError: the file is missing or of another kind.
    """
    require_records(path)
    yield from _read_parquet(path, parse, columns) if path.name.lower().endswith(".parquet") else _read_jsonl(path, parse)


def require_records(path: Path) -> None:
    """Raise DataError unless the path is a file of a kind that `read_records` reads."""
    if not path.name.lower().endswith(SUFFIXES):
        raise DataError(f"{path}: got an unsupported kind of file, expected {', '.join(SUFFIXES)}. Convert or rename it.")
    if not path.is_file():  # to open a pipe would wait for its writer
        raise DataError(f"{path}: no such file, or no regular one. Check the path.")


def list_columns(path: Path) -> list[str]:
    """The columns of a Parquet file; none of a file of another kind, or of one that cannot be read."""
    if not path.name.lower().endswith(".parquet"):
        return []
    schema: Any = read_one("broken_file", str(path), pq.read_schema, path)
    return [] if isinstance(schema, Problem) else schema.names


def get_field(record: Record, names: tuple[str, ...]) -> tuple[str, Any]:
    """(name, value) of the first of `names` that the record sets; (the first name, None) when it sets none."""
    for name in names:
        if record.get(name) is not None:
            return name, record[name]
    return names[0], None


def read_text(record: Record, *names: str, required: bool = False) -> str:
    """The text under the first of `names` that is set, without NULs and lone surrogates; empty when absent. Raises DataError: the
    value is not text, or is required and empty."""
    name, value = get_field(record, names)
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise DataError(f"column {name!r}: got {value!r:.80} ({type(value).__name__}), expected text")
    text = to_encodable(value)
    if required and not text.strip():
        raise DataError(f"column {name!r}: got nothing, expected text")
    return text


def read_name(record: Record, *names: str, required: bool = False) -> str:
    """As `read_text`, for what other records refer to: nothing is taken out of it, as another name could come of that. Raises
    DataError: the value is not text, is required and empty, or holds NULs or lone surrogates."""
    text = read_text(record, *names, required=required)
    name, value = get_field(record, names)
    if value is not None and text != value:
        raise DataError(f"column {name!r}: got {value!r:.80}, expected text without NULs and halves of surrogate pairs")
    return text


def to_page_number(value: Any, name: str = "page_number") -> int:
    """A 1-based page number; `3.0` and `"3"` are taken for 3.

    Raises:
        PageZeroError: it is 0.
        DataError: anything else.
    """
    if str(value).strip() in ("0", "0.0", "-0.0"):
        raise PageZeroError(f"column {name!r}: got the page {value!r}, expected a whole number from 1, the first page")
    return to_number(value, name)


def refuse_page_zero(path: Path, problems: Sequence[Problem]) -> None:
    """DataError where a record of a file names a page 0: then it counts from 0, and its other pages are one too low as well."""
    if zeros := [problem for problem in problems if problem.kind == "page_zero"]:
        raise DataError(
            f"{path}: got a page 0 in {len(zeros)} records, first at {zeros[0].place}. Pages are counted from 1; where one is 0, "
            "all seem to be counted from 0, and each would be taken for the page before it. Add 1 to every page number of the "
            "file, or remove these records if only they are wrong."
        )


def to_number(value: Any, name: str) -> int:
    """A positive whole number; `3.0` and `"3"` are taken for 3. Raises DataError: anything else."""
    number = value
    if isinstance(number, str) and number.strip().isdecimal():
        number = int(number)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number < 2**31:
        raise DataError(
            f"column {name!r}: got {value!r:.80} ({type(value).__name__}), expected a whole number from 1 to 2^31 - 1"
        )
    return number


def _read_jsonl(path: Path, parse: Callable[[Record], T]) -> Iterator[tuple[str, T | Problem]]:
    stream = read_one("broken_file", str(path), _open_lines, path)
    if isinstance(stream, Problem):
        yield stream.place, stream
        return
    with stream:
        for number in count(1):
            place = f"{path}:{number}"
            line = read_one("broken_record", f"{place} and what follows", next, stream, b"")
            if isinstance(line, Problem):
                yield place, line
            elif line.strip():
                yield place, read_one("broken_record", place, _parse_line, line, parse)
            if isinstance(line, Problem) or not line:
                return


def _open_lines(path: Path) -> io.BufferedIOBase:
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")


def _parse_line(line: bytes, parse: Callable[[Record], T]) -> T:
    try:
        record = parse_json(line.decode("utf-8-sig"), parse_constant=_read_constant)
    except ValueError as error:
        raise DataError(f"not JSON ({error}): {line[:60]!r}") from error
    if not isinstance(record, dict):
        raise DataError(f"got {type(record).__name__} {record!r:.60}, expected a JSON object")
    return parse(record)


def _read_constant(name: str) -> float | None:
    """NaN as null, or an infinity. NaN is how pandas and Python's own writer put down an empty cell."""
    return None if name == "NaN" else float(name)


def _clear_nan(value: Any) -> Any:
    """A value of a Parquet file with null for NaN, however deep."""
    if isinstance(value, list):
        return [_clear_nan(item) for item in value]
    if isinstance(value, dict):
        return {name: _clear_nan(item) for name, item in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def _read_parquet(path: Path, parse: Callable[[Record], T], columns: Collection[str]) -> Iterator[tuple[str, T | Problem]]:
    opened = read_one("broken_file", str(path), _open_parquet, path, columns)
    if isinstance(opened, Problem):
        yield opened.place, opened
        return
    table, names = opened
    with table:
        first = 1
        for group in range(table.num_row_groups):
            last = first + table.metadata.row_group(group).num_rows - 1
            batches = table.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names)
            yield from _read_batches(batches, path, first, last, parse)
            first = last + 1


def _open_parquet(path: Path, columns: Collection[str]) -> tuple[pq.ParquetFile, list[str]]:
    """The file and the names of the columns to read."""
    table = pq.ParquetFile(path)
    found = table.schema_arrow.names
    names = [name for name in found if not columns or name in columns]
    if columns and not names:
        raise DataError(f"got the columns {', '.join(found) or '(none)'}, expected some of {', '.join(columns)}. Rename them.")
    if len(set(names)) < len(names):
        raise DataError(f"got the columns {', '.join(names)}, one of them twice. Rename or drop it.")
    return table, names


def _read_batches(
    batches: Iterator[pa.RecordBatch], path: Path, first: int, last: int, parse: Callable[[Record], T]
) -> Iterator[tuple[str, T | Problem]]:
    """Rows `first` to `last` of the file, which are the rows of one row group."""
    while first <= last:
        rest = f"{path}:{first}-{last}"
        batch = read_one("broken_record", rest, _read_batch, batches)
        if isinstance(batch, Problem):
            yield rest, batch
            return
        rows = read_one("broken_record", rest, batch.to_pylist)
        for offset in range(batch.num_rows):
            place = f"{path}:{first + offset}"
            yield place, read_one("broken_record", place, _parse_row, batch, rows, offset, parse)
        first += batch.num_rows


def _read_batch(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    for batch in batches:
        return batch
    raise DataError("the file counts these rows and does not hold them. Write it again or remove it.")


def _parse_row(batch: pa.RecordBatch, rows: list[Record] | Problem, offset: int, parse: Callable[[Record], T]) -> T:
    """One of `rows`, or, where a cell of the batch cannot be converted, the row by itself."""
    return parse(_clear_nan(batch.slice(offset, 1).to_pylist()[0] if isinstance(rows, Problem) else rows[offset]))
