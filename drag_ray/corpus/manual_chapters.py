"""Chapters of a manual: the entries of a module, or of a class that has enough of them."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence

from drag_ray.corpus.manual_entries import ManualEntry

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
