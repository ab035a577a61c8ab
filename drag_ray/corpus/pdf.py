"""The text layer of a PDF."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

from drag_ray.errors import DataError
from drag_ray.types import Page

_REASONS = {
    pdfium.FPDF_ERR_FILE: ("cannot be opened", "Check the path and its permissions"),
    pdfium.FPDF_ERR_FORMAT: ("is not a PDF, or is truncated", "Fetch it again or remove it"),
    pdfium.FPDF_ERR_PASSWORD: ("is encrypted", "Save a copy without the password (qpdf --decrypt) or remove it"),
    pdfium.FPDF_ERR_SECURITY: ("is encrypted with an unknown scheme", "Save a copy without protection or remove it"),
}
# PDFium writes U+0002 (other builds U+FFFE) for a hyphen at the end of a line, with the rest of the word after it.
_LINE_END_HYPHEN = re.compile("(\\w+)[\x02\ufffe](?:\r?\n)?(\\w+)")
_WORD = re.compile(r"\w+")
_UNWANTED = re.compile("[\x00\x02\ud800-\udfff\ufffe\uffff]")


def read_pdf(path: Path, file: str) -> list[Page]:
    """The pages of a PDF with the text of their text layer, in order; a page without text has an empty one.

    Args:
        path: the PDF.
        file: the name that the pages carry, relative to the documents' folder.

    Raises:
        DataError: the file is missing, truncated, encrypted or has no pages.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file. Check corpus.documents.")
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        raise DataError(f"{path}: {_explain(error, path)}") from error
    try:
        total_pages = len(document)
        if total_pages == 0:
            raise DataError(f"{path}: a PDF without pages. Fetch it again or remove it.")
        texts = [_read_text(document, index, path) for index in range(total_pages)]
    finally:
        document.close()
    words = {word.lower() for text in texts for word in _WORD.findall(text)}
    return [Page(file, number, total_pages, clean_text(text, words)) for number, text in enumerate(texts, start=1)]


def clean_text(text: str, words: Collection[str] = ()) -> str:
    """Text that every encoder and index takes: no NULs, no lone surrogates, `\\n` line ends.

    A hyphen at a line's end either breaks a word or belongs to it.  The word is joined if the document has it
    in one piece elsewhere (`words`, in lower case), and keeps its hyphen otherwise.
    """

    def rejoin(match: re.Match[str]) -> str:
        whole = match[1] + match[2]
        return whole if whole.lower() in words else f"{match[1]}-{match[2]}"

    rejoined = _LINE_END_HYPHEN.sub(rejoin, text)
    return _UNWANTED.sub("", rejoined).replace("\r\n", "\n").replace("\r", "\n").strip()


def _explain(error: pypdfium2.PdfiumError, path: Path) -> str:
    code = error.err_code or 0
    # For a PDF without pages PDFium sets no error code, so the one found may be left over from another file.
    if code == pdfium.FPDF_ERR_PASSWORD and b"/Encrypt" not in path.read_bytes():
        code = 0
    reason, remedy = _REASONS.get(code, ("is damaged, or has no pages", "Fetch it again or remove it"))
    return f"{reason}. {remedy}."


def _read_text(document: Any, index: int, path: Path) -> str:
    try:
        page = document[index]
        try:
            text_page = page.get_textpage()
            try:
                return text_page.get_text_bounded()
            finally:
                text_page.close()
        finally:
            page.close()
    except pypdfium2.PdfiumError as error:
        raise DataError(f"{path}: page {index + 1} cannot be read ({error}). Repair the file or remove it.") from error
