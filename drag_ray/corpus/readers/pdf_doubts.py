"""Signs that the text layer of a page of a PDF is not what a reader sees there."""

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pypdfium2.raw as pdfium

from drag_ray.corpus.readers.pdf_annotations import Box, Entry, clip, overlap
from drag_ray.corpus.text import count_letters

UNREADABLE = "holds characters that stand for no letter within its words"
_UNEXPLAINED = "is short beside pictures without text on them"
_STAMPED = "lacks a stamp or a signature"

_NO_LETTER = "\x01\x03-\x08\x0b\x0e-\x1f\x7f-\x9f\ue000-\uf01f\uf021-\uf8ff\ufffd\U000f0000-\U0010ffff"
"""Controls but U+0002 for a hyphen, private use but U+F020 for the blank of a symbol font, and U+FFFD."""
# One alone, or before a word, is a bullet or a logo.
_BROKEN_WORD = re.compile(f"[^\\W_][{_NO_LETTER}]|[{_NO_LETTER}]{{2}}")
_MIN_BROKEN_WORDS = 3
_SAMPLE_CHARS = 300
_MAX_UNMAPPED = 0.05
_PAGE_LETTERS = 2_500
"""what a page full of text has at least"""
_MAX_PICTURES = 100
_NUM_BANDS = 40
"""from the top of the paper to its bottom"""
_MIN_TEXT_SHARE = 0.25
"""of the bands of a picture that have text where the text layer was read off the picture, or is set on it"""
_MAX_DEPTH = 15


def diagnose(page: Any, text_page: Any, text: str, entries: Sequence[Entry]) -> str:
    """The reason to doubt the text layer of a page, to follow "Its text layer"; empty if there is none.

    Args:
        page: pypdfium2's `PdfPage`.
        text_page: its `PdfTextPage`.
        text: what was read of them.
        entries: of its form, and its notes.
    """
    if len(_BROKEN_WORD.findall(text)) >= _MIN_BROKEN_WORDS or _measure_unmapped(text_page) > _MAX_UNMAPPED:
        return UNREADABLE
    if not all(entry.text for entry in entries):
        return _STAMPED
    letters = count_letters(text, limit=_PAGE_LETTERS)
    if letters < _PAGE_LETTERS and letters < _PAGE_LETTERS * _measure_pictures(page, text_page):
        return _UNEXPLAINED
    return ""


def list_objects(page: Any) -> Iterator[tuple[int, Any]]:
    """The kinds of all objects of a page, and the object of the page itself of which each is a part."""
    yield from _walk(pdfium.FPDFPage_CountObjects, pdfium.FPDFPage_GetObject, page, _MAX_DEPTH)


def _walk(count: Callable[[Any], int], get: Callable[[Any, int], Any], parent: Any, depth: int) -> Iterator[tuple[int, Any]]:
    for index in range(count(parent)):
        item = get(parent, index)
        kind = pdfium.FPDFPageObj_GetType(item)
        yield kind, item
        if kind == pdfium.FPDF_PAGEOBJ_FORM and depth > 1:
            inner = _walk(pdfium.FPDFFormObj_CountObjects, pdfium.FPDFFormObj_GetObject, item, depth - 1)
            yield from ((inner_kind, item) for inner_kind, _ in inner)


def _measure_unmapped(text_page: Any) -> float:
    """The share of characters, of a sample, whose glyphs the PDF does not map to Unicode."""
    num_chars = text_page.count_chars()
    sample = range(0, num_chars, max(1, num_chars // _SAMPLE_CHARS))
    return sum(pdfium.FPDFText_HasUnicodeMapError(text_page, index) == 1 for index in sample) / max(1, len(sample))


def _measure_pictures(page: Any, text_page: Any) -> float:
    """The area of the pictures that have no text on them, or a line or two of it, in areas of the paper."""
    paper = page.get_bbox()
    width, height = max(paper[2] - paper[0], 1.0), max(paper[3] - paper[1], 1.0)
    pictures = {_measure(item) for kind, item in list_objects(page) if kind == pdfium.FPDF_PAGEOBJ_IMAGE}
    visible = (clip(box, paper) for box in pictures if overlap(box, paper))
    largest = sorted(visible, key=_compute_area, reverse=True)[:_MAX_PICTURES]
    lines = _list_lines(text_page) if largest else []
    unexplained = 0.0
    for picture in largest:
        bands = {band for line in lines if overlap(line, picture) for band in _list_bands(clip(line, paper), height)}
        if len(bands) < _MIN_TEXT_SHARE * (picture[3] - picture[1]) / height * _NUM_BANDS:
            unexplained += _compute_area(picture)
    return unexplained / (width * height)


def _list_lines(text_page: Any) -> list[Box]:
    """The boxes of the pieces of text of a page."""
    lines: list[Box] = []
    left, top, right, bottom = (ctypes.c_double() for _ in range(4))
    for index in range(pdfium.FPDFText_CountRects(text_page, 0, -1)):
        pdfium.FPDFText_GetRect(text_page, index, left, top, right, bottom)
        lines.append((left.value, bottom.value, right.value, top.value))
    return lines


def _list_bands(line: Box, height: float) -> range:
    """The bands on which a piece of text lies; of one that stands upright, as at a margin, that of its middle."""
    left, bottom, right, top = line
    if top - bottom > right - left:
        bottom = top = (bottom + top) / 2
    return range(int(bottom / height * _NUM_BANDS), int(top / height * _NUM_BANDS) + 1)


def _measure(item: Any) -> Box:
    edges = left, bottom, right, top = tuple(ctypes.c_float() for _ in range(4))
    pdfium.FPDFPageObj_GetBounds(item, *edges)
    return left.value, bottom.value, right.value, top.value


def _compute_area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
