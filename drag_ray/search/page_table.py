"""The pages of an index as a memory-mapped Arrow file, sorted by (file, page_number). A page is named by its row.

The file is cut into record batches of `BATCH_ROWS` rows, so that a row is found by division, and its strings have
64-bit offsets, so that a collection may hold more than 2 GiB of text.
"""

import posixpath
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from difflib import get_close_matches
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.errors import SearchIndexError
from drag_ray.search.normal_form import normalise
from drag_ray.storage import artifacts
from drag_ray.storage.file_access import reading
from drag_ray.types import Page

_MAX_GUESSES, _MAX_COMPARED, _MAX_CHARS = 100, 10_000, 255
"""How often names are compared letter by letter, with how many, and how long ones."""


def normalise_name(name: str) -> str:
    """A name in its normal form, in `/` and without `./`: macOS decomposes its letters, Windows writes `\\`."""
    return posixpath.normpath(normalise(name).replace("\\", "/"))


class FileNames:
    """The files of a collection, found by their names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = set(names)
        self._guesses: dict[str, str] = {}

    @cached_property
    def _by_form(self) -> dict[str, list[str]]:
        return self._group(normalise_name)

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        return self._group(_read_stem)

    def _group(self, compute_key: Callable[[str], str]) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self._names):
            groups[compute_key(name)].append(name)
        return groups

    def find(self, name: str, is_there: Callable[[str], bool] = lambda _: True) -> str | None:
        """The file of this name or, where there is none, the only one whose name looks the same.

        Args:
            is_there: says of which files there are, for who may not know of all.
        """
        if name in self._names and is_there(name):
            return name
        alike = [file for file in self._by_form.get(normalise_name(name), []) if is_there(file)]
        return alike[0] if len(alike) == 1 else None

    def guess(self, name: str) -> str:
        """The file that may be meant by a name that is not found: in another folder, of another case or suffix, with a slip of
        the pen; empty where none is near.
        """
        if name not in self._guesses and len(self._guesses) < _MAX_GUESSES:
            stem = _read_stem(name)
            near = self._by_form.get(normalise_name(name)) or self._by_stem.get(stem) or self._compare(stem)
            self._guesses[name] = next(iter(near), "")
        return self._guesses.get(name, "")

    def _compare(self, stem: str) -> list[str]:
        stems = list(self._by_stem) if len(self._by_stem) <= _MAX_COMPARED and len(stem) <= _MAX_CHARS else []
        return [name for near in get_close_matches(stem, stems, n=1, cutoff=0.8) for name in self._by_stem[near]]


def _read_stem(name: str) -> str:
    """A name without its folder, its suffix and its case."""
    return posixpath.splitext(posixpath.basename(normalise_name(name)))[0].casefold()


BATCH_ROWS = 8_192
_CHUNK_ROWS = 50_000
_REBUILD = "Build the index again: python jobs/index.py --verify"
_LARGE = {pa.string(): pa.large_string()}
_SCHEMA = pa.schema([pa.field(field.name, _LARGE.get(field.type, field.type)) for field in schemas.PAGES])


def compute_order(source: Path) -> np.ndarray:
    """The rows of a Parquet file of pages in order of (file, page_number): int array (n,).

    Raises:
        DataError: the file does not hold pages.
    """
    keys = pl.DataFrame(schemas.read_table(source, schemas.PAGES, ["file", "page_number"]))
    return keys.select(pl.arg_sort_by("file", "page_number")).to_series().to_numpy()


def write_source(path: Path, pages: pl.DataFrame) -> None:
    """Write pages as a Parquet file of `PAGES`, a chunk at a time: the strings of one stay below the 2 GiB that 32-bit offsets
    can address."""
    with artifacts.whole_or_absent(path) as scratch, pq.ParquetWriter(scratch, schemas.PAGES, compression="zstd") as writer:
        for chunk in pages.select(schemas.PAGES.names).iter_slices(_CHUNK_ROWS):
            writer.write_table(chunk.to_arrow().cast(schemas.PAGES))


def write_pages(source: Path | pl.DataFrame, order: np.ndarray, path: Path) -> None:
    """Write the rows of a Parquet file of pages, or of pages in memory, in this order.

    One batch of a file is in memory at a time: pages that are to be put in order go through a file beside `path`.
    """
    if isinstance(source, pl.DataFrame):
        _write_batches(_take_batches(source, order), path)
        return
    batches = _read_batches(source)
    if (order == np.arange(len(order))).all():
        _write_batches(batches, path)
        return
    unordered_path = path.with_suffix(".unordered")
    _write_batches(batches, unordered_path)
    _write_batches(_take_batches(pl.DataFrame(map_pages(unordered_path)), order), path)
    unordered_path.unlink()


def _read_batches(source: Path) -> Iterator[pa.RecordBatch]:
    with reading(source), pq.ParquetFile(source) as file:
        yield from file.iter_batches(BATCH_ROWS, columns=schemas.PAGES.names)


def map_pages(path: Path) -> pa.Table:
    """A page table by row, in the mapped file. Raises ArtifactError: the file cannot be read."""
    with reading(path, _REBUILD):
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def map_texts(path: Path) -> pa.ChunkedArray:
    """The texts of a page table by row, as `map_pages`."""
    return map_pages(path)["text"]


def _take_batches(pages: pl.DataFrame, order: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Polars, since Arrow copies the whole table to take a row of it."""
    for start in range(0, len(order), BATCH_ROWS):
        taken = pages[order[start : start + BATCH_ROWS]].to_arrow(compat_level=pl.CompatLevel.oldest())
        yield taken.combine_chunks().to_batches()[0]


def _write_batches(batches: Iterable[pa.RecordBatch], path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch.select(_SCHEMA.names).cast(_SCHEMA))


class _Strings:
    """A column of a batch. Arrow's own way to a string, by a scalar, takes five times as long."""

    __slots__ = ("_offsets", "_utf8")

    def __init__(self, column: pa.LargeStringArray) -> None:
        _, offsets, utf8 = column.buffers()
        self._offsets = memoryview(offsets).cast("q")
        self._utf8 = memoryview(utf8 or b"")

    def __getitem__(self, offset: int) -> str:
        return str(self._utf8[self._offsets[offset] : self._offsets[offset + 1]], "utf-8")


class PageTable:
    """An open page table. Raises SearchIndexError: the file is missing, cut short or of another layout."""

    def __init__(self, path: Path) -> None:
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
            for batch in batches:
                batch.column("file").validate(full=True)  # counting values over damaged offsets ends the process
            table = pa.Table.from_batches(batches, reader.schema)
            counts = table["file"].value_counts()
            self._page_numbers = memoryview(table["page_number"].to_numpy())
            self._total_pages = memoryview(table["total_pages"].to_numpy())
            if any(batch.num_rows != BATCH_ROWS for batch in batches[:-1]):
                raise pa.ArrowInvalid(f"not cut into batches of {BATCH_ROWS} rows")
            self._texts, self._text_sources, self._images = (
                [_Strings(batch.column(name)) for batch in batches] for name in ("text", "text_source", "image")
            )
        except MemoryError:
            raise
        except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
            raise SearchIndexError(f"{path}: cannot be read ({error}). {_REBUILD}") from None
        # Value counts come in order of first appearance, and the table is sorted: each file is a range of rows.
        self._files: list[str] = counts.field("values").to_pylist()
        self._starts: list[int] = [0, *accumulate(counts.field("counts").to_pylist())]
        self._ranks = {file: rank for rank, file in enumerate(self._files)}
        self._names = FileNames(self._files)
        self._shown: np.ndarray | None = None

    @property
    def files(self) -> list[str]:
        """All files, in order."""
        return self._files

    @property
    def lengths(self) -> np.ndarray:
        """The number of pages of each file: int (files,)."""
        return np.diff(self._starts)

    def restrict(self, shown: np.ndarray) -> "PageTable":
        """The same table for who may see some files alone: the others are not found by any name. Rows stay as they are.

        Args:
            shown: bool (files,).
        """
        restricted = copy(self)
        restricted._shown = shown if self._shown is None else self._shown & shown
        return restricted

    def _rank(self, file: str) -> int | None:
        """The place of a file among all, by its name or one that looks the same (see `FileNames`)."""
        rank = self._ranks.get(file)
        return self._ranks.get(self._names.find(file, self._is_shown) or "") if rank is None or self._shown is not None else rank

    def _is_shown(self, file: str) -> bool:
        return self._shown is None or bool(self._shown[self._ranks[file]])

    def __len__(self) -> int:
        return len(self._page_numbers)

    def key(self, row: int) -> tuple[str, int]:
        """(file, page_number) of a row."""
        return self._files[bisect_right(self._starts, row) - 1], self._page_numbers[row]

    def row(self, file: str, page_number: int) -> int | None:
        """The row of a page, None if the index does not have it."""
        rank = self._rank(file)
        if rank is None:
            return None
        end = self._starts[rank + 1]
        row = bisect_left(self._page_numbers, page_number, self._starts[rank], end)
        return row if row < end and self._page_numbers[row] == page_number else None

    def rows(self, file: str) -> range:
        """The rows of a file's pages; empty if the index does not have the file."""
        rank = self._rank(file)
        return range(0) if rank is None else range(self._starts[rank], self._starts[rank + 1])

    def row_ranges(self, files: Iterable[str]) -> list[range]:
        """The rows of several files, neighbours joined."""
        joined: list[range] = []
        for rows in sorted({self.rows(file) for file in files}, key=lambda rows: rows.start):
            if joined and joined[-1].stop == rows.start:
                joined[-1] = range(joined[-1].start, rows.stop)
            elif rows:
                joined.append(rows)
        return joined

    def text(self, row: int) -> str:
        """The text of a page."""
        return self._texts[row // BATCH_ROWS][row % BATCH_ROWS]

    def page(self, row: int) -> Page:
        """The whole page."""
        file, page_number = self.key(row)
        batch, offset = divmod(row, BATCH_ROWS)
        text, source, image = self._texts[batch][offset], self._text_sources[batch][offset], self._images[batch][offset]
        return Page(file, page_number, self._total_pages[row], text, source, image)
