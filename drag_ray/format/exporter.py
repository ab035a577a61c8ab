"""Files of training rows for another trainer, one JSON object a line."""

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from drag_ray.format import exports
from drag_ray.format.columns import Example, Row
from drag_ray.format.exports import ExportName
from drag_ray.format.row_format import load_format
from drag_ray.format.rows import FormatName
from drag_ray.storage.artifacts import whole_or_absent
from drag_ray.variants import load_variant

ExportedRow = Mapping[str, Any]


@dataclass(frozen=True)
class Exporter:
    """An exporter, as a module of `exports` declares it in EXPORTER.

    Attributes:
        convert: the trainer's rows for an example and the images and tools of its row; none if it has no use for the example.
        describe: writes into the trainer's folder what it wants to know of the files with rows: their names and columns.
    """

    convert: Callable[[Example, Row], Iterator[ExportedRow]]
    describe: Callable[[Path, Mapping[str, Collection[str]]], None] | None = None


def load_exporter(name: ExportName) -> Exporter:
    """The exporter of a trainer."""
    return load_variant(exports, name).EXPORTER


class ExportFile:
    """`<trainer>/<format>_<side>.jsonl`, written table by table. Use it as a context manager; it is there at its end or never.

    Attributes:
        key: the format and the side of its rows.
        columns: those of the rows written so far, in no order; none if no row of the format is of use to the trainer.
    """

    def __init__(self, folder: Path, trainer: ExportName, format_name: FormatName, side: str) -> None:
        self.key = (format_name, side)
        self.path = folder / trainer / f"{format_name}_{side}.jsonl"
        self.columns: set[str] = set()
        self._to_example = load_format(format_name).to_example
        self._convert = load_exporter(trainer).convert
        self._open_files = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            scratch = opened.enter_context(whole_or_absent(self.path))
            self._lines = opened.enter_context(scratch.open("w", encoding="utf-8"))
            self._open_files = opened.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open_files.__exit__(*exception)

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table of the file's format."""
        for row in table.to_pylist():
            for exported in self._convert(self._to_example(row), row):
                self._lines.write(json.dumps(exported, ensure_ascii=False) + "\n")
                self.columns.update(exported)


def describe_files(folder: Path, trainer: ExportName, files: Sequence[ExportFile]) -> None:
    """Write what a trainer wants to know of its files, once they are written."""
    describe = load_exporter(trainer).describe
    if describe:
        written = [file for file in files if file.path.parent.name == trainer and file.columns]
        describe(folder / trainer, {file.path.name: file.columns for file in written})
