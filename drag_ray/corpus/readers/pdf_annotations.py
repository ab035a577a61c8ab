"""Form entries, ticks, notes and stamps on a page of a PDF, and the files that are attached to it."""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

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
