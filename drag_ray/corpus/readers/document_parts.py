"""Parts of the corpus, each read at once, written to one file, and not read again when the stage is started again.

A part is a few small documents or a range of pages of a large one. The parts depend on the documents alone, not on
the machine, so that a run that was killed finds its parts wherever it goes on.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from drag_ray import schemas
from drag_ray.corpus.problems import Problem, read_one
from drag_ray.corpus.readers.documents import Span
from drag_ray.corpus.text import to_printable
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.storage.file_access import create_mark, list_folder, writing
from drag_ray.types import CAPTION, Page

MAX_OVERRUNS = 3
"""parts of a document that went beyond a limit; the parts that nobody has begun then are not read"""
_OVERRUN = ".overrun"


class ReadingCosts:
    """The costs of the parts of large documents: one that costs too much is read no further.

    Its parts are read side by side, by processes that know nothing of each other, so what each has cost is an empty file beside
    what was read, with the seconds in its name. A document with one page that nobody can read loses the part of that page; one
    that is made to take as long as it may, in each of hundreds of parts, is given up.

    Args:
        folder: on storage that all who read share; it need not be there.
        max_cpu_s: CPU seconds that the parts of a document may take together.
    """

    def __init__(self, folder: Path, max_cpu_s: float) -> None:
        self._folder = folder
        self._max_cpu_s = max_cpu_s

    def find_reason(self, span: Span) -> str | None:
        """The reason not to read a part; None if it is read. Raises ArtifactError: the folder cannot be listed."""
        if span.last_page is None:
            return None
        parts = list_folder(self._locate(span))
        if sum(part.suffix == _OVERRUN for part in parts) >= MAX_OVERRUNS:
            return f"not read: {MAX_OVERRUNS} parts of this document went beyond a limit. Print it to a new PDF or remove it."
        if sum(int(part.stem.rpartition("-")[2]) for part in parts) >= self._max_cpu_s:
            limit = f"{self._max_cpu_s:g} CPU seconds (60 times corpus.document_cpu_s)"
            return f"not read: other parts of this document took {limit}. Raise the limit, split the document or remove it."
        return None

    def add(self, span: Span, cpu_s: float, overrun: bool = False) -> None:
        """Note what a part of a document has cost, in whole seconds; a document that is read at once is not read again anyway.
        Raises ArtifactError: nothing can be written."""
        if span.last_page is None:
            return
        folder = self._locate(span)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        create_mark(folder / f"{span.first_page}-{span.last_page}-{math.ceil(cpu_s)}{_OVERRUN if overrun else ''}")

    def _locate(self, span: Span) -> Path:
        return self._folder / compute_fingerprint(str(span.path))


DIR_NAME = "parts"
_MAX_DOCUMENTS = 8
_MAX_BYTES = 256 * 1024
"""Where a part of small documents ends; larger documents are cut by pages."""
_MAX_PAGES = 32
_CHUNK_LINKING_PAGES = 8_000
"""with 64 Ki characters of addresses each, of four bytes: below the 2 GiB that 32-bit offsets can address"""
PAGE_KEY = ["file", "page_number"]
_PROBLEM = [field.name for field in fields(Problem)]
PAGE_ROWS = pa.schema([*schemas.PAGES, schemas.LINKS.field("links"), *((name, pa.string()) for name in (*_PROBLEM, "document"))])
"""A page with its links and its document (also its `place`), or, with a `reason`, something that was set aside at `place`."""

Part = tuple[Span, ...]
Read = Callable[[Span], tuple[list[Page], list[Problem]]]
"""Reads a document: its pages, and what was set aside."""


def plan_parts(documents: Sequence[Path], count: Callable[[Path], int]) -> Iterator[Part]:
    """The documents in their order, cut into parts."""
    small: list[Span] = []
    num_bytes = 0
    for path in documents:
        status = read_one("broken_file", str(path), path.stat)
        size = 0 if isinstance(status, Problem) else status.st_size  # reading it says what is wrong
        if small and (size + num_bytes > _MAX_BYTES or len(small) == _MAX_DOCUMENTS):
            yield tuple(small)
            small, num_bytes = [], 0
        if size <= _MAX_BYTES:
            small.append(Span(path))
            num_bytes += size
        else:
            yield from cut_pages(path, count(path))
    if small:
        yield tuple(small)


def cut_pages(path: Path, num_pages: int) -> Iterator[Part]:
    """A document of so many pages as parts of one range each."""
    if num_pages <= _MAX_PAGES:
        yield (Span(path),)
        return
    for first in range(1, num_pages + 1, _MAX_PAGES):
        yield (Span(path, first, min(first + _MAX_PAGES - 1, num_pages)),)


def build_part_path(parts_dir: Path, part: Part, contents: Mapping[Path, str]) -> Path:
    """The file of a part: named by what is in it, with the hashes of its documents' bytes."""
    spans = [(str(span.path), contents[span.path], span.first_page, span.last_page) for span in part]
    return parts_dir / f"{artifacts.compute_fingerprint(spans)}.parquet"


def write_part(part_path: Path, part: Part, read: Read) -> tuple[int, int]:
    """Read the documents of a part and write its file, whole or not at all.

    Returns:
        Numbers of pages and of problems.
    """
    rows: list[dict[str, Any]] = []
    num_problems = 0
    for span in part:
        pages, problems = read(span)
        document = str(span.path)
        place = to_printable(document)
        rows += [{**schemas.to_row(page), "place": place, "reason": "", "document": document} for page in pages]
        rows += [{**asdict(problem), "document": document} for problem in problems]
        num_problems += len(problems)
    artifacts.write_parquet(part_path, pa.Table.from_pylist(rows, schema=PAGE_ROWS))
    return len(rows) - num_problems, num_problems


def merge_rows(rows: pl.DataFrame, limit: int = 0) -> tuple[pl.DataFrame, list[Problem]]:
    """All pages in order of (file, page_number), as `PAGES` and with the place of their row (`order`), and what was set aside.

    A page that several documents hold is kept from the first, with the first page image that any of them has; one that is there
    for its picture, to which the first has the caption, is not set aside. The last page of a file settles how many pages all of
    them say that it has.

    Args:
        rows: as `PAGE_ROWS`.
        limit: pages to keep at most; 0 keeps all.
    """
    ordered = rows.with_row_index("order")
    problems = [Problem(*row) for row in ordered.filter(pl.col("reason") != "").select(_PROBLEM).iter_rows()]
    ordered = ordered.filter(pl.col("reason") == "").select(*schemas.PAGES.names, "place", "order").sort(*PAGE_KEY, "order")
    is_first = pl.struct(PAGE_KEY).is_first_distinct()
    is_picture = (pl.col("text_source").first().over(PAGE_KEY) == CAPTION) & (pl.col("image") != "")
    kept = ordered.with_columns(
        total_pages=pl.max_horizontal("total_pages", "page_number").max().over("file"),
        image=pl.col("image").filter(pl.col("image") != "").first().over(PAGE_KEY).fill_null(""),
    ).filter(is_first)
    problems += [
        Problem(place, f"page {number} of {file!r} comes again; the first one is kept", "duplicate")
        for file, number, place in ordered.filter(~is_first & ~is_picture).select(*PAGE_KEY, "place").iter_rows()
    ]
    return (kept.head(limit) if limit else kept).drop("place"), problems


def merge_links(rows: pl.DataFrame) -> pa.Table:
    """The links of all pages that have any, as a table of `LINKS`; of pages that several documents hold, those of the first."""
    found = rows.filter(pl.col("reason") == "").select(schemas.LINKS.names)
    kept = found.unique(PAGE_KEY, keep="first", maintain_order=True).filter(pl.col("links").list.len() > 0).sort(PAGE_KEY)
    chunks = [chunk.to_arrow().cast(schemas.LINKS) for chunk in kept.iter_slices(_CHUNK_LINKING_PAGES)]
    return pa.concat_tables(chunks or [schemas.LINKS.empty_table()])
