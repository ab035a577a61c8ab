"""Tables of pages: JSONL (DRAG's OCR format) and Parquet."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from drag_ray import artifacts
from drag_ray.corpus.records import Problem, get_field, read_records, read_text, to_page_number
from drag_ray.errors import DataError
from drag_ray.types import Page


def read_pages(path: Path) -> tuple[list[Page], list[Problem]]:
    """Pages of a `.jsonl`, `.jsonl.gz` or `.parquet` file in their order, and what was set aside.

    A record is `{"file", "page_number" or "page", "text"[, "total_pages"][, "service" or "text_source"]}`. A page that
    comes again is set aside; a missing `total_pages` becomes the largest page number of the file.

    Raises:
        DataError: the file as a whole cannot be read.
    """
    pages: dict[tuple[str, int], Page] = {}
    problems: list[Problem] = []
    last_pages: dict[str, int] = {}
    for place, record in read_records(path):
        if isinstance(record, Problem):
            problems.append(record)
            continue
        try:
            page = _parse_page(record)
        except DataError as error:
            problems.append(Problem(place, str(error)))
            continue
        key = (page.file, page.page_number)
        if key in pages:
            problems.append(Problem(place, f"page {page.page_number} of {page.file!r} comes again; the first one is kept"))
            continue
        pages[key] = page
        last_pages[page.file] = max(last_pages.get(page.file, 0), page.total_pages, page.page_number)
    return [replace(page, total_pages=last_pages[page.file]) for page in pages.values()], problems


def write_pages(path: Path, pages: Iterable[Page]) -> None:
    """Write pages as JSONL in DRAG's OCR format, whole or not at all; `service` holds the text's source."""
    rows = [
        {"file": p.file, "page_number": p.page_number, "total_pages": p.total_pages, "text": p.text, "service": p.text_source}
        for p in pages
    ]
    artifacts.write_jsonl(path, rows)


def _parse_page(record: dict[str, Any]) -> Page:
    number_name, number = get_field(record, ("page_number", "page"))
    total = record.get("total_pages")
    return Page(
        file=read_text(record, "file", "document", required=True),
        page_number=to_page_number(number, number_name),
        total_pages=0 if total is None else to_page_number(total, "total_pages"),
        text=read_text(record, "text"),
        text_source=read_text(record, "text_source", "service") or "jsonl",
    )
