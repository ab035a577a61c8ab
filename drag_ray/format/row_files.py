"""Files of training rows, written table by table: memory does not grow with the number of rows."""

import contextlib
from pathlib import Path
from typing import Any, Self

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.artifacts import whole_or_absent


class RowFiles:
    """`<side>.parquet` and `<side>.jsonl` of one kind of rows. Use it as a context manager; both are there at its end or neither.

    Attributes:
        num_rows: rows written so far.
        parts: names of the parts that wrote rows, each into a Parquet row group of its own, in order.
    """

    def __init__(self, folder: Path, side: str, schema: pa.Schema) -> None:
        self.parquet_path = folder / f"{side}.parquet"
        self.num_rows = 0
        self.parts: list[str] = []
        self._jsonl_path = folder / f"{side}.jsonl"
        self._schema = schema
        self._open_files = contextlib.ExitStack()

    def __enter__(self) -> Self:
        parquet_scratch = self._open_files.enter_context(whole_or_absent(self.parquet_path))
        jsonl_scratch = self._open_files.enter_context(whole_or_absent(self._jsonl_path))
        self._parquet = self._open_files.enter_context(pq.ParquetWriter(parquet_scratch, self._schema, compression="zstd"))
        self._jsonl = self._open_files.enter_context(jsonl_scratch.open("wb"))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open_files.__exit__(*exception)

    def write(self, table: pa.Table, part: str) -> None:
        """Append the rows of a part."""
        if not table.num_rows:
            return
        self._parquet.write_table(table, row_group_size=table.num_rows)
        rows = pl.from_arrow(table)
        assert isinstance(rows, pl.DataFrame)
        rows.write_ndjson(self._jsonl)
        self.num_rows += table.num_rows
        self.parts.append(part)
