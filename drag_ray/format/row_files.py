"""Files of training rows, written part by part: memory does not grow with the number of rows."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.storage.artifacts import whole_or_absent


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
