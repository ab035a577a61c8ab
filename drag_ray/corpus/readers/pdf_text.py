"""Text of a page of a PDF as a reader sees it: what lies on the paper, in its lines, with what was filled in or noted on it."""

import ctypes
import math
import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pypdfium2.raw as pdfium

from drag_ray.corpus.readers.pdf_annotations import Box, Entry, overlap

_LINE_END = re.compile(r"([^\s\0])[ \0]*(\r\n(?:[ \0]*\r\n)*)[ \0]*(?=[^\s\0])")
"""A character, the line's end after it, and what lies before the next character."""
_OUTSIDE = "\0"
"""stands for a character that does not lie on the paper; no text keeps it"""
_UNKNOWN = "\ufffd"
"""for one of which its font says that it is NUL"""
_BLANKS_OUTSIDE = re.compile("(?<=\0) +(?=\0)")
_WORD_GAP = 0.15
"""between two words at least, in heights of a line; a blank takes 0.2 and more, letters of a word lie side by side"""
_SAME_BASELINE = 0.01
"""between two baselines, in heights of a line, that are one"""

_Edit = tuple[int, int, str]
"""Where a piece of a text starts and ends, and what comes in its place."""


def read_text(page: Any, text_page: Any, entries: Sequence[Entry]) -> str:
    """The text layer of a page within its paper, with the entries beside their labels.

    PDFium's text of a rectangle loses line ends of turned pages, and gaps between the cells of tables; its text of the whole
    page has what lies beyond the paper, and for some tables a line end after each letter. So the second is taken, and where
    the characters around a line end lie says what it is.

    Args:
        page: pypdfium2's `PdfPage`.
        text_page: its `PdfTextPage`.
        entries: of its form, and its notes.
    """
    text = _read_visible(text_page, page.get_bbox())
    edits = [(*match.span(2), _read_gap(text_page, match.start(1), match.end())) for match in _LINE_END.finditer(text)]
    pieces: list[str] = []
    start = 0
    for stop, next_start, piece in sorted([*edits, *_place(entries, text_page, text)], key=lambda edit: edit[:2]):
        pieces += [text[start:stop], piece]
        start = next_start
    return "".join([*pieces, text[start:]])


def _read_visible(text_page: Any, paper: Box) -> str:
    """A character for each that PDFium counts, also for one that does not lie on the paper."""
    num_chars = text_page.count_chars()
    if num_chars and pdfium.FPDFText_GetTextIndexFromCharIndex(text_page, num_chars - 1) == num_chars - 1:
        whole: str = text_page.get_text_range()
        if len(whole) == num_chars and _squeeze(whole) == _squeeze(text_page.get_text_bounded()):
            return whole.replace("\0", _UNKNOWN)  # as on nearly all pages: twenty times as fast as what follows
    codes = (pdfium.FPDFText_GetUnicode(text_page, index) for index in range(num_chars))
    chars = (chr(min(code, sys.maxunicode)) if code else _UNKNOWN for code in codes)
    visible = (
        char if char.isspace() or overlap(_measure(text_page, index), paper) else _OUTSIDE for index, char in enumerate(chars)
    )
    return _BLANKS_OUTSIDE.sub(lambda match: _OUTSIDE * len(match[0]), "".join(visible))


def _squeeze(text: str) -> str:
    return "".join(text.replace("\ufffe", "\x02").split())


def _read_gap(text_page: Any, before: int, after: int) -> str:
    """Separator of two characters where PDFium sees a line end: a line end, a blank or nothing."""
    along = round(pdfium.FPDFText_GetCharAngle(text_page, before) / (math.pi / 2)) % 2  # 0 where lines go along x, or 1 along y
    first, second = _measure_line(text_page, before), _measure_line(text_page, after)
    height = first[3 - along] - first[1 - along]
    if abs(_locate(text_page, before)[1 - along] - _locate(text_page, after)[1 - along]) > _SAME_BASELINE * height:
        return "\n"
    gap = max(second[along] - first[along + 2], first[along] - second[along + 2])
    return " " if gap > _WORD_GAP * height else ""


def _place(entries: Sequence[Entry], text_page: Any, text: str) -> list[_Edit]:
    """Insertions: what was filled in or ticked beside its label, notes and what has no label at the end of the page."""
    if not entries:
        return []
    indices = [index for index, char in enumerate(text) if not char.isspace() and char != _OUTSIDE]
    boxes = np.array([_measure_line(text_page, index) for index in indices]).reshape(-1, 4)
    edits: list[_Edit] = []
    for entry in filter(lambda entry: entry.text, entries):
        label, is_before = (None, False) if entry.kind == "note" else _find_label(entry, boxes)
        if label is None:
            edits.append((len(text), len(text), f"\n{entry.text}"))
            continue
        position = indices[label] + is_before
        edits.append((position, position, f" {entry.text}" if text[position : position + 1].isspace() else f" {entry.text} "))
    return edits


def _find_label(entry: Entry, boxes: np.ndarray) -> tuple[int | None, bool]:
    """The character that ends the label before an entry or above it, or begins that after a tick; and whether it is before it.

    Args:
        boxes: of characters, N x 4.
    """
    left, bottom, right, top = entry.box
    slack = (top - bottom) / 4
    beside = (boxes[:, 1] <= (bottom + top) / 2) & (boxes[:, 3] >= (bottom + top) / 2)
    before = _find_nearest(beside & (boxes[:, 2] <= left + slack), left - boxes[:, 2])
    if entry.kind == "tick":
        after = _find_nearest(beside & (boxes[:, 0] >= right - slack), boxes[:, 0] - right)
        is_before = before is not None and (after is None or left - boxes[before, 2] < boxes[after, 0] - right)
        return (before, True) if is_before else (after, False)
    if before is None:
        above = (boxes[:, 1] >= top - slack) & (boxes[:, 0] < right) & (boxes[:, 2] > left)
        # The line above ends with its character furthest to the right.
        lowest = boxes[above, 1].min(initial=np.inf)
        before = _find_nearest(above & (boxes[:, 1] <= lowest + slack), -boxes[:, 2])
    return before, True


def _find_nearest(candidates: np.ndarray, distances: np.ndarray) -> int | None:
    """The one of the candidates (N) with the least distance; None if there is none."""
    return int(np.where(candidates, distances, np.inf).argmin()) if candidates.any() else None


def _measure(text_page: Any, index: int) -> Box:
    """The box of the ink of a character."""
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    pdfium.FPDFText_GetCharBox(text_page, index, left, right, bottom, top)
    return left.value, bottom.value, right.value, top.value


def _measure_line(text_page: Any, index: int) -> Box:
    """The box of a character as wide as its advance, and as high as its font."""
    rect = pdfium.FS_RECTF()
    pdfium.FPDFText_GetLooseCharBox(text_page, index, rect)
    return rect.left, rect.bottom, rect.right, rect.top


def _locate(text_page: Any, index: int) -> tuple[float, float]:
    """The point of the baseline at which a character begins."""
    x, y = ctypes.c_double(), ctypes.c_double()
    pdfium.FPDFText_GetCharOrigin(text_page, index, x, y)
    return x.value, y.value
