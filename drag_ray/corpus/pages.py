"""Tables of pages: JSONL (DRAG's OCR format) and Parquet."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from drag_ray.corpus.problems import Problem
from drag_ray.corpus.records import (
    FILE_COLUMNS,
    PAGE_COLUMNS,
    get_field,
    read_name,
    read_records,
    read_text,
    refuse_page_zero,
    to_number,
    to_page_number,
)
from drag_ray.storage import artifacts
from drag_ray.types import Page

_SOURCE_COLUMNS = ("text_source", "service")
_COLUMNS = (*FILE_COLUMNS, *PAGE_COLUMNS, "total_pages", "text", *_SOURCE_COLUMNS)


def read_pages(path: Path) -> tuple[list[Page], list[Problem]]:
    """Pages of a `.jsonl`, `.jsonl.gz` or `.parquet` file in their order, and what was set aside.

    A record is `{"file", "page_number" or "page", "text"[, "total_pages"][, "service" or "text_source"]}`. A page that
    comes again is set aside; a missing `total_pages` becomes the largest page number of the file.

    Raises:
        DataError: the file is missing, of another kind, or counts its pages from 0.
    """
    pages: dict[tuple[str, int], Page] = {}
    problems: list[Problem] = []
    last_pages: dict[str, int] = {}
    for place, page in read_records(path, _parse_page, _COLUMNS):
        if isinstance(page, Problem):
            problems.append(page)
            continue
        key = (page.file, page.page_number)
        if key in pages:
            reason = f"page {page.page_number} of {page.file!r} comes again; the first one is kept"
            problems.append(Problem(place, reason, "duplicate"))
            continue
        pages[key] = page
        last_pages[page.file] = max(last_pages.get(page.file, 0), page.total_pages, page.page_number)
    refuse_page_zero(path, problems)
    return [replace(page, total_pages=last_pages[page.file]) for page in pages.values()], problems


def write_pages(path: Path, pages: Iterable[Page]) -> None:
    """Write pages as JSONL in DRAG's OCR format, whole or not at all; `service` holds the text's source."""
    rows = [
        {"file": p.file, "page_number": p.page_number, "total_pages": p.total_pages, "text": p.text, "service": p.text_source}
        for p in pages
    ]
    artifacts.write_jsonl(path, rows)


def _parse_page(record: dict[str, Any]) -> Page:
    number_name, number = get_field(record, PAGE_COLUMNS)
    total = record.get("total_pages")
    return Page(
        file=read_name(record, *FILE_COLUMNS, required=True),
        page_number=to_page_number(number, number_name),
        total_pages=0 if total is None else to_number(total, "total_pages"),
        text=read_text(record, "text"),
        text_source=read_text(record, *_SOURCE_COLUMNS) or "jsonl",
    )
