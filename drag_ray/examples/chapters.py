"""Chapters of a reference as PDF files: the entries of a service or a module, one page an entry."""

import hashlib
import io
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from drag_ray.storage import artifacts

_PAGE_SIZE = (595, 842)
_MARGIN = 36
_FONT = "Courier"
# Courier is 0.6 of its size wide: 96 columns at 9 points fill the width between the margins.
_COLUMNS = 96
_FONT_SIZES = (9.0, 8.0, 7.0, 6.0, 5.0)
_LEADING = 1.15
# The built-in fonts know Latin-1 alone. Tables that polars draws with box characters stay legible as ASCII.
_BOX_HORIZONTAL = dict.fromkeys(map(ord, "─━═╌┄┈╞╡╪"), "-")
_BOX_VERTICAL = dict.fromkeys(map(ord, "│┃║┆┊╎"), "|")
_BOX_CORNERS = dict.fromkeys(range(0x2500, 0x2580), "+")
_TYPOGRAPHY = dict(zip(map(ord, "\u2018\u2019\u201c\u201d\u2013\u2014"), "''\"\"--", strict=True))
_TO_LATIN = _BOX_CORNERS | _BOX_HORIZONTAL | _BOX_VERTICAL | _TYPOGRAPHY


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: `namespace` is what holds it, `signature` a line below its name."""

    namespace: str
    name: str
    signature: str
    body: str


EntryT = TypeVar("EntryT", bound=Entry)


def render_chapter(entries: Sequence[Entry]) -> bytes:
    """One PDF with one page for each entry: its qualified name, signature and body.

    Long entries are set in a smaller font, down to 5 points (about 130 lines); what still does not fit is cut
    at the end of the page.  Lines are broken between words alone and never hyphenated.  Characters outside
    Latin-1 become ASCII look-alikes or `?`.  The bytes depend on the entries alone.
    """
    from reportlab.pdfgen.canvas import Canvas

    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=_PAGE_SIZE, invariant=1, pageCompression=1)
    for entry in entries:
        lines = _lay_out(entry)
        size = next((size for size in _FONT_SIZES if len(lines) <= _count_lines(size)), _FONT_SIZES[-1])
        text = canvas.beginText(_MARGIN, _PAGE_SIZE[1] - _MARGIN - size)
        text.setFont(_FONT, size, leading=size * _LEADING)
        text.textLines(lines[: _count_lines(size)], trim=0)
        canvas.drawText(text)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def _count_lines(size: float) -> int:
    return int((_PAGE_SIZE[1] - 2 * _MARGIN) / (size * _LEADING))


def _lay_out(entry: Entry) -> list[str]:
    """The wrapped lines of a page; indentation and blank lines of the docstring are kept."""
    paragraphs = [entry.name, entry.signature, "", *entry.body.split("\n")]
    lines: list[str] = []
    for paragraph in paragraphs:
        line = paragraph.expandtabs(4).translate(_TO_LATIN).encode("latin-1", "replace").decode("latin-1").rstrip()
        if len(line) <= _COLUMNS:
            lines.append(line)
            continue
        indent = " " * (len(line) - len(line.lstrip()))
        lines += textwrap.wrap(line, _COLUMNS, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True)
    return lines


QUESTIONS_NAME = "questions.jsonl"
MAX_EVIDENCE_PAGES = 8
"""A question about more entries than this tells none of them apart."""
_MIN_CHAPTER_ENTRIES = 8


def gather_chapters(entries: Sequence[EntryT]) -> dict[str, list[EntryT]]:
    """Entries by namespace; those of a small one join what it is in, as a class is in a module."""
    sizes = Counter(entry.namespace for entry in entries)
    chapters: dict[str, list[EntryT]] = defaultdict(list)
    for entry in entries:
        parent = entry.namespace.rpartition(".")[0]
        chapters[parent if parent and sizes[entry.namespace] < _MIN_CHAPTER_ENTRIES else entry.namespace].append(entry)
    return chapters


def take_chapters(entries: Sequence[EntryT], limit: int) -> list[EntryT]:
    """At most `limit` entries: chapters in an arbitrary but fixed order, those that fit whole, then a part of the next."""
    chapters = gather_chapters(entries)
    order = sorted(chapters, key=lambda chapter: hashlib.sha256(chapter.encode()).digest())
    taken: list[EntryT] = []
    left_out: list[EntryT] = []
    for chapter in order:
        fits = len(taken) + len(chapters[chapter]) <= limit
        (taken if fits else left_out).extend(chapters[chapter])
    taken += left_out[: max(limit - len(taken), 0)]
    return sorted(taken, key=lambda entry: entry.name)


def write_chapters(out_dir: Path, chapters: Mapping[str, Sequence[Entry]]) -> dict[str, dict[str, Any]]:
    """Write each chapter as the PDF of its name, one page an entry; returns the evidence page of each entry by its name."""
    places: dict[str, dict[str, Any]] = {}
    for file, entries in chapters.items():
        artifacts.write_bytes(out_dir / file, render_chapter(entries))
        places |= {entry.name: {"file": file, "page_number": number} for number, entry in enumerate(entries, start=1)}
    return places
