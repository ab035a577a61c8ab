"""Pages of a PDF: their text layer, and OCR and page images where they are asked for."""

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pypdfium2.raw as pdfium
from PIL import Image
from pypdfium2 import PdfDocument, PdfiumError, PdfObject

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import encode
from drag_ray.corpus.links import add_links
from drag_ray.corpus.picture import compute_scale
from drag_ray.corpus.problems import Problem, read_one
from drag_ray.corpus.readers.page_reader import PageReader, Render
from drag_ray.corpus.readers.pdf_text import (
    Box,
    Entry,
    clip,
    list_attachments,
    list_links,
    list_pinned_files,
    overlap,
    read_entries,
    read_text,
)
from drag_ray.corpus.text import clean_text, count_letters
from drag_ray.errors import DataError
from drag_ray.types import Page

UNREADABLE = "contains characters without a letter within its words"
_UNEXPLAINED = "is short, and the page has pictures whose text is missing"
_STAMPED = "lacks a stamp or a signature"

_NO_LETTER = "\x01\x03-\x08\x0b\x0e-\x1f\x7f-\x9f\ue000-\uf01f\uf021-\uf8ff\ufffd\U000f0000-\U0010ffff"
"""Controls but U+0002 for a hyphen, private use but U+F020 for the blank of a symbol font, and U+FFFD."""
# One alone, or before a word, is a bullet or a logo.
_BROKEN_WORD = re.compile(f"[^\\W_][{_NO_LETTER}]|[{_NO_LETTER}]{{2}}")
_MIN_BROKEN_WORDS = 3
_SAMPLE_CHARS = 300
_FEW_LETTERS = 100
"""Letters and digits below which a text layer holds little."""
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


def _list_objects(page: Any) -> Iterator[tuple[int, Any]]:
    """The kinds of all objects of a page, and the raw object of the page itself of which each is a part."""
    # An object of pypdfium2's for each would take a quarter of the time in which a document is read.
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
    pictures = {PdfObject(raw, page).get_bounds() for kind, raw in _list_objects(page) if kind == pdfium.FPDF_PAGEOBJ_IMAGE}
    visible = (clip(box, paper) for box in pictures if overlap(box, paper))
    largest = sorted(visible, key=_compute_area, reverse=True)[:_MAX_PICTURES]
    lines = [text_page.get_rect(index) for index in range(text_page.count_rects())] if largest else []
    unexplained = 0.0
    for picture in largest:
        bands = {band for line in lines if overlap(line, picture) for band in _list_bands(clip(line, paper), height)}
        if len(bands) < _MIN_TEXT_SHARE * (picture[3] - picture[1]) / height * _NUM_BANDS:
            unexplained += _compute_area(picture)
    return unexplained / (width * height)


def _list_bands(line: Box, height: float) -> range:
    """The bands on which a piece of text lies; of one that stands upright, as at a margin, that of its middle."""
    left, bottom, right, top = line
    if top - bottom > right - left:
        bottom = top = (bottom + top) / 2
    return range(int(bottom / height * _NUM_BANDS), int(top / height * _NUM_BANDS) + 1)


def _compute_area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


_REASONS = {
    pdfium.FPDF_ERR_FILE: ("cannot be opened", "Check the path and its permissions"),
    pdfium.FPDF_ERR_FORMAT: ("is not a PDF, or is truncated", "Fetch it again or remove it"),
    pdfium.FPDF_ERR_PASSWORD: ("is encrypted", "Save a copy without the password (qpdf --decrypt) or remove it"),
    pdfium.FPDF_ERR_SECURITY: ("is encrypted with an unknown scheme", "Save a copy without protection or remove it"),
}
_WORD = re.compile(r"\w+")
_GRAPHICS = {pdfium.FPDF_PAGEOBJ_IMAGE, pdfium.FPDF_PAGEOBJ_PATH, pdfium.FPDF_PAGEOBJ_SHADING}
_POINTS_PER_INCH = 72
_MAX_LINKS = 10_000
"""of a page that are looked at"""


def count_pdf_pages(path: Path) -> int:
    """The number of pages of a PDF. Raises DataError: the file is missing, truncated, encrypted or has no pages."""
    with _open(path) as document:
        return len(document)


def read_pdf(
    path: Path, file: str, reader: PageReader | None = None, first_page: int = 1, last_page: int | None = None
) -> tuple[list[Page], list[Problem]]:
    """The pages of a PDF in order, and what was set aside; a page without text has an empty one.

    Args:
        file: the name that the pages carry, relative to the documents' folder.
        reader: does OCR and page images; none for the text layer alone.
        last_page: the last page to read; the PDF's last one by default.

    Raises:
        DataError: the file is missing, truncated, encrypted, has no pages or too many.
    """
    problems: list[Problem] = []
    with _open(path) as document:
        total_pages = len(document)
        if reader:
            reader.check_length(path, total_pages)
        if document.get_formtype():
            document.init_forms()  # else the entries of filled forms would be neither known nor rendered
        if first_page == 1:
            problems += [_build_attachment_problem(path, what) for what in list_attachments(document)]
        layers: dict[int, _TextLayer] = {}
        for number in range(first_page, min(last_page or total_pages, total_pages) + 1):
            place = f"{path}, page {number}"
            layer = read_one("broken_page", place, _read_layer, document, number, reader.config if reader else None)
            if isinstance(layer, Problem):
                problems.append(layer)
            else:
                layers[number] = layer
                problems += [_build_attachment_problem(path, what) for what in layer.files]
        words = {word.lower() for layer in layers.values() for word in _WORD.findall(layer.text)}
        pages: list[Page] = []
        for number, layer in layers.items():
            page = add_links(Page(file, number, total_pages, clean_text(layer.text, words)), layer.links)
            if reader:
                place, render = f"{path}, page {number}", _build_render(document, number)
                finished = read_one("broken_page", place, reader.read, page, render, layer.use_ocr, layer.doubt != UNREADABLE)
                if isinstance(finished, Problem):
                    problems.append(replace(finished, reason=f"{finished.reason} Its text layer is kept."))
                else:
                    page = finished
                    if layer.doubt:
                        problems.append(_build_doubt_problem(place, layer, page))
            pages.append(page)
    return pages, problems


def render_page(path: Path, page_number: int, dpi: float, max_pixels: int) -> bytes:
    """The JPEG of a page, counted from 1, of at most `max_pixels`. Raises DataError: as `read_pdf`, or it has no such page."""
    with _open(path) as document:
        if not 1 <= page_number <= len(document):
            raise DataError(f"{path}: has {len(document)} pages, got page {page_number}.")
        if document.get_formtype():
            document.init_forms()
        _, data = encode(_build_render(document, page_number)(dpi, max_pixels))
    return data


@dataclass(frozen=True, slots=True)
class _TextLayer:
    """The text of a page before it is cleaned, whether OCR reads the page too, why the layer is doubted, the files that are
    pinned to the page, and the addresses of its links."""

    text: str
    use_ocr: bool
    doubt: str
    files: tuple[str, ...]
    links: tuple[str, ...]


@contextmanager
def _open(path: Path) -> Generator[PdfDocument]:
    if not path.is_file():
        raise DataError(f"{path}: no such file. Check corpus.documents.")
    try:
        document = PdfDocument(path)
    except PdfiumError as error:
        raise DataError(f"{path}: {_explain(error, path)}") from error
    with closing(document):
        if len(document) == 0:
            raise DataError(f"{path}: a PDF without pages. Fetch it again or remove it.")
        yield document


def _explain(error: PdfiumError, path: Path) -> str:
    code = error.err_code or 0
    # For a PDF without pages PDFium sets no error code, so the one found may be left over from another file.
    if code == pdfium.FPDF_ERR_PASSWORD and b"/Encrypt" not in path.read_bytes():
        code = 0
    reason, remedy = _REASONS.get(code, ("is damaged, or has no pages", "Fetch it again or remove it"))
    return f"{reason}. {remedy}."


def _read_layer(document: PdfDocument, number: int, config: CorpusConfig | None) -> _TextLayer:
    with closing(document[number - 1]) as page, closing(page.get_textpage()) as text_page:
        entries = read_entries(page, document.formenv)
        text = read_text(page, text_page, entries)
        files, links = tuple(list_pinned_files(page)), tuple(islice(list_links(document, page), _MAX_LINKS))
        if config is None or config.ocr == "always":
            shows_something = bool(entries) or next(_list_objects(page), None) is not None
            return _TextLayer(text, config is not None and shows_something, "", files, links)
        doubt = diagnose(page, text_page, text, entries)
        if config.ocr == "off" or count_letters(text, limit=_FEW_LETTERS) >= _FEW_LETTERS:
            return _TextLayer(text, config.ocr == "auto" and bool(doubt), doubt, files, links)
        # That OCR reads a scan is nothing to report.
        return _TextLayer(text, bool(doubt) or _may_hold_more(text, page), doubt if doubt == UNREADABLE else "", files, links)


def _may_hold_more(text: str, page: Any) -> bool:
    """True if OCR may find more than a little text: on a page with nothing else it would find the same; glyphs that stand for no
    letter are worth a look."""
    kinds = {kind for kind, _ in _list_objects(page)}
    return bool(kinds) and (bool(kinds & _GRAPHICS) or not count_letters(text, limit=1))


def _build_doubt_problem(place: str, layer: _TextLayer, page: Page) -> Problem:
    if page.text_source == "ocr":
        outcome = "OCR has read the page instead."
    elif layer.use_ocr:
        outcome = "OCR finds no more, so it is kept."
    else:
        outcome = "It is kept: corpus.ocr is off. Set it to auto."
    return Problem(place, f"Its text layer {layer.doubt}. {outcome}", "doubtful_page")


def _build_attachment_problem(path: Path, what: str) -> Problem:
    return Problem(str(path), f"holds {what}, not read. Save its files among the documents to read them.", "attachment")


def _build_render(document: Any, number: int) -> Render:
    def render(dpi: float, max_pixels: int) -> Image.Image:
        with closing(document[number - 1]) as page:
            width, height = page.get_size()
            scale = compute_scale(width, height, dpi / _POINTS_PER_INCH, max_pixels)
            with closing(page.render(scale=scale, rev_byteorder=True)) as bitmap:
                return bitmap.to_pil().convert("RGB")

    return render
