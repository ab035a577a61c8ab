"""Chapters of a manual, a file each: the entries of a module, or of a class that has enough of them."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drag_ray.examples.manual_entries import ManualEntry
from drag_ray.examples.manual_pdf import render_manual
from drag_ray.storage import artifacts

QUESTIONS_NAME = "questions.jsonl"
MAX_EVIDENCE_PAGES = 8
"""A question about more entries than this tells none of them apart."""
_MIN_CHAPTER_ENTRIES = 8


def gather_chapters(entries: Sequence[ManualEntry]) -> dict[str, list[ManualEntry]]:
    """Entries by namespace; those of a small one join what it is in, as a class is in a module."""
    sizes = Counter(entry.namespace for entry in entries)
    chapters: dict[str, list[ManualEntry]] = defaultdict(list)
    for entry in entries:
        parent = entry.namespace.rpartition(".")[0]
        chapters[parent if parent and sizes[entry.namespace] < _MIN_CHAPTER_ENTRIES else entry.namespace].append(entry)
    return chapters


def take_chapters(entries: Sequence[ManualEntry], limit: int) -> list[ManualEntry]:
    """At most `limit` entries: chapters in an arbitrary but fixed order, those that fit whole, then a part of the next."""
    chapters = gather_chapters(entries)
    order = sorted(chapters, key=lambda chapter: hashlib.sha256(chapter.encode()).digest())
    taken: list[ManualEntry] = []
    left_out: list[ManualEntry] = []
    for chapter in order:
        fits = len(taken) + len(chapters[chapter]) <= limit
        (taken if fits else left_out).extend(chapters[chapter])
    taken += left_out[: max(limit - len(taken), 0)]
    return sorted(taken, key=lambda entry: entry.name)


def write_chapters(out_dir: Path, chapters: Mapping[str, Sequence[ManualEntry]]) -> dict[str, dict[str, Any]]:
    """Write each chapter as the PDF of its name, one page an entry; returns the evidence page of each entry by its name."""
    places: dict[str, dict[str, Any]] = {}
    for file, entries in chapters.items():
        artifacts.write_bytes(out_dir / file, render_manual(entries))
        places |= {entry.name: {"file": file, "page_number": number} for number, entry in enumerate(entries, start=1)}
    return places
