"""Records of a JSONL or Parquet file one by one, with their place; what cannot be read is set aside with a reason."""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.errors import DataError

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was set aside: its place (`file:line`, a file, a page or a question) and the reason."""

    place: str
    reason: str


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any] | Problem]]:
    """(place, record or problem) for each line of a `.jsonl` or `.jsonl.gz` file or each row of a `.parquet` file.

    Blank lines are passed over. Places are `file:line`, counted from 1.

    Raises:
        DataError: the file is missing, of another kind, or truncated.
    """
    name = path.name.lower()
    if name.endswith(".parquet"):
        yield from _read_parquet(path)
    elif name.endswith((".jsonl", ".jsonl.gz")):
        yield from _read_jsonl(path)
    else:
        raise DataError(f"{path}: got a file of another kind, expected {', '.join(SUFFIXES)}. Convert or rename it.")


def get_field(record: dict[str, Any], names: tuple[str, ...]) -> tuple[str, Any]:
    """(name, value) of the first of `names` that the record sets; (the first name, None) when it sets none."""
    for name in names:
        if record.get(name) is not None:
            return name, record[name]
    return names[0], None


def read_text(record: dict[str, Any], *names: str, required: bool = False) -> str:
    """The text under the first of `names` that is set, without NULs and lone surrogates; empty when absent.

    Raises:
        DataError: the value is not text, or is required and empty.
    """
    name, value = get_field(record, names)
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise DataError(f"column {name!r}: got {value!r:.80} ({type(value).__name__}), expected text")
    text = value.replace("\0", "").encode("utf-8", "ignore").decode("utf-8")
    if required and not text.strip():
        raise DataError(f"column {name!r}: got nothing, expected text")
    return text


def to_page_number(value: Any, name: str = "page_number") -> int:
    """A 1-based page number; `3.0` and `"3"` are taken for 3.

    Raises:
        DataError: anything else.
    """
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise DataError(f"column {name!r}: got {value!r:.80} ({type(value).__name__}), expected a whole number from 1")
    return value


def _read_parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    row = 0
    try:
        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=1024):
                for record in batch.to_pylist():
                    row += 1
                    yield f"{path}:{row}", record
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Check the path.") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error}). Write it again or remove it.") from error


def _read_jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any] | Problem]]:
    try:
        with gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    place = f"{path}:{number}"
                    yield place, _parse_line(line, place)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Check the path.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}). Fetch it again or remove it.") from error


def _parse_line(line: bytes, place: str) -> dict[str, Any] | Problem:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        return Problem(place, f"not JSON ({error}): {line[:60]!r}")
    if not isinstance(record, dict):
        return Problem(place, f"got {type(record).__name__} {record!r:.60}, expected a JSON object")
    return record
