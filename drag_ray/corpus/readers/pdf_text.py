"""Text of a page of a PDF as a reader sees it: what lies on the paper, in its lines, with what was filled in or noted on it (form
entries, ticks, notes and stamps); and the files that are attached to it."""

import ctypes
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import pypdfium2.raw as pdfium

from drag_ray.corpus.links import MAX_CHARS

Box = tuple[float, float, float, float]
"""Left, bottom, right and top, in points of a page that is not turned."""

_MAX_NAMES = 100
_MAX_NAME_CHARS = 200
_UNSEEN = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW
_NO_ENTRIES = {pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP, pdfium.FPDF_ANNOT_FILEATTACHMENT}
_TICKS = {pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON}
_CHOICES = {pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX}


@dataclass(frozen=True, slots=True)
class Entry:
    """The visible text of an annotation and its box; the text is empty for a picture, of a stamp or a signature."""

    text: str
    box: Box
    kind: Literal["field", "tick", "note"]


def read_entries(page: Any, form: Any) -> list[Entry]:
    """The visible entries of a page in the document's order: of form fields, notes, and stamps and signatures without text.

    Args:
        page: pypdfium2's `PdfPage`.
        form: PDFium's handle of the document's form; None where it has none.
    """
    paper = page.get_bbox()
    found = (_read_entry(annotation, form) for annotation in _list_annotations(page))
    return [entry for entry in found if entry and overlap(entry.box, paper)]


def list_links(document: Any, page: Any) -> Iterator[str]:
    """The addresses that a page links to, of the web or of files; not its links to pages of the document itself."""
    for annotation in _list_annotations(page):
        link = pdfium.FPDFAnnot_GetLink(annotation)
        action = pdfium.FPDFLink_GetAction(link) if link else None
        kind = pdfium.FPDFAction_GetType(action) if action else pdfium.PDFACTION_UNSUPPORTED
        if kind == pdfium.PDFACTION_URI:
            yield _read_bytes(pdfium.FPDFAction_GetURIPath, document, action)
        elif kind in (pdfium.PDFACTION_REMOTEGOTO, pdfium.PDFACTION_LAUNCH):
            yield quote(_read_bytes(pdfium.FPDFAction_GetFilePath, action), "/:")


def list_attachments(document: Any) -> Iterator[str]:
    """The files within a document, pypdfium2's `PdfDocument`, by name, but for those that are pinned to a page."""
    total = pdfium.FPDFDoc_GetAttachmentCount(document)
    for index in range(min(total, _MAX_NAMES)):
        yield _name_file(pdfium.FPDFDoc_GetAttachment(document, index))
    if total > _MAX_NAMES:
        yield f"{total - _MAX_NAMES} more files"


def list_pinned_files(page: Any) -> Iterator[str]:
    """The files that are pinned to a page, by name."""
    for annotation in _list_annotations(page):
        if pdfium.FPDFAnnot_GetSubtype(annotation) == pdfium.FPDF_ANNOT_FILEATTACHMENT:
            yield _name_file(pdfium.FPDFAnnot_GetFileAttachment(annotation))


def _name_file(attachment: Any) -> str:
    name = _read_string(pdfium.FPDFAttachment_GetName, attachment) if attachment else ""
    return f"the file {name[:_MAX_NAME_CHARS]!r}"


def clip(first: Box, second: Box) -> Box:
    """The intersection of two boxes that overlap."""
    return max(first[0], second[0]), max(first[1], second[1]), min(first[2], second[2]), min(first[3], second[3])


def overlap(first: Box, second: Box) -> bool:
    """True if two boxes have an area in common."""
    left, bottom, right, top = clip(first, second)
    return left < right and bottom < top


def _list_annotations(page: Any) -> Iterator[Any]:
    for index in range(pdfium.FPDFPage_GetAnnotCount(page)):
        if annotation := pdfium.FPDFPage_GetAnnot(page, index):
            try:
                yield annotation
            finally:
                pdfium.FPDFPage_CloseAnnot(annotation)


def _read_entry(annotation: Any, form: Any) -> Entry | None:
    kind = pdfium.FPDFAnnot_GetSubtype(annotation)
    rect = pdfium.FS_RECTF()
    if kind in _NO_ENTRIES or pdfium.FPDFAnnot_GetFlags(annotation) & _UNSEEN or not pdfium.FPDFAnnot_GetRect(annotation, rect):
        return None
    box = (rect.left, rect.bottom, rect.right, rect.top)
    if kind == pdfium.FPDF_ANNOT_WIDGET:
        return _read_field(annotation, form, box) if form else None
    text = _read_string(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents").strip()
    return Entry(text, box, "note") if text or kind == pdfium.FPDF_ANNOT_STAMP else None


def _read_field(annotation: Any, form: Any, box: Box) -> Entry | None:
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in _TICKS:
        return Entry("[x]" if pdfium.FPDFAnnot_IsChecked(form, annotation) else "[ ]", box, "tick")
    if kind == pdfium.FPDF_FORMFIELD_SIGNATURE:
        return Entry("", box, "field") if pdfium.FPDFAnnot_HasKey(annotation, b"V") else None
    is_secret = pdfium.FPDFAnnot_GetFormFieldFlags(form, annotation) & pdfium.FPDF_FORMFLAG_TEXT_PASSWORD
    if kind not in _CHOICES and (kind != pdfium.FPDF_FORMFIELD_TEXTFIELD or is_secret):
        return None
    num_options = pdfium.FPDFAnnot_GetOptionCount(form, annotation) if kind in _CHOICES else 0
    options = filter(partial(pdfium.FPDFAnnot_IsOptionSelected, form, annotation), range(num_options))
    chosen = [_read_string(pdfium.FPDFAnnot_GetOptionLabel, form, annotation, index) for index in options]
    text = (", ".join(chosen) or _read_string(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)).strip()
    return Entry(text, box, "field") if text else None


def _read_string(get: Callable[..., int], *args: Any) -> str:
    """A string that PDFium gives in UTF-16 with a zero at its end."""
    num_bytes = get(*args, None, 0)
    buffer = ctypes.create_string_buffer(num_bytes + 2)
    get(*args, ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), num_bytes)
    return buffer.raw[:num_bytes].decode("utf-16-le", "ignore").removesuffix("\0")


def _read_bytes(get: Callable[..., int], *args: Any) -> str:
    """A string that PDFium gives in UTF-8 with a zero at its end; empty where it is longer than any link that is kept."""
    num_bytes = get(*args, None, 0)
    if num_bytes > 4 * MAX_CHARS + 1:
        return ""
    buffer = ctypes.create_string_buffer(num_bytes + 1)
    get(*args, buffer, num_bytes)
    return buffer.value.decode("utf-8", "ignore")


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
        char if char.isspace() or overlap(text_page.get_charbox(index), paper) else _OUTSIDE for index, char in enumerate(chars)
    )
    return _BLANKS_OUTSIDE.sub(lambda match: _OUTSIDE * len(match[0]), "".join(visible))


def _squeeze(text: str) -> str:
    return "".join(text.replace("\ufffe", "\x02").split())


def _read_gap(text_page: Any, before: int, after: int) -> str:
    """Separator of two characters where PDFium sees a line end: a line end, a blank or nothing."""
    along = round(pdfium.FPDFText_GetCharAngle(text_page, before) / (math.pi / 2)) % 2  # 0 where lines go along x, or 1 along y
    first, second = (text_page.get_charbox(index, loose=True) for index in (before, after))
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
    boxes = np.array([text_page.get_charbox(index, loose=True) for index in indices]).reshape(-1, 4)
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


def _locate(text_page: Any, index: int) -> tuple[float, float]:
    """The point of the baseline at which a character begins."""
    x, y = ctypes.c_double(), ctypes.c_double()
    pdfium.FPDFText_GetCharOrigin(text_page, index, x, y)
    return x.value, y.value
