"""The text of a page of the web. What is here runs in a process of its own, for pages come from anybody."""

import codecs
import tempfile
from pathlib import Path

from drag_ray.corpus.readers.html_text import parse_html
from drag_ray.corpus.readers.pdf import read_pdf
from drag_ray.errors import DataError

HTML_TYPES = ("text/html", "application/xhtml+xml")
TEXT_TYPES = ("text/plain", "text/markdown", "text/csv", "application/json")
PDF_TYPE = "application/pdf"
PAGE_TYPES = (*HTML_TYPES, *TEXT_TYPES, PDF_TYPE)
_MAX_PDF_PAGES = 100


def extract_page(data: bytes, content_type: str, charset: str) -> str:
    """The main text of a page: of HTML what trafilatura takes for it (https://aclanthology.org/2021.acl-demo.15/), and where it
    finds nothing all that a browser shows; of a PDF its text layer.

    Raises:
        DataError: it cannot be read.
    """
    if content_type == PDF_TYPE:
        return _read_pdf(data)
    if content_type in TEXT_TYPES:
        return _decode(data, charset or "utf-8")

    import trafilatura

    page = _decode(data, charset) if charset else data
    text = trafilatura.extract(page, include_comments=False, include_tables=True)
    if not text:
        return parse_html(page if isinstance(page, str) else _decode(data, "utf-8")).strip()
    return text


def _decode(data: bytes, charset: str) -> str:
    """A text; what cannot be read is replaced, as browsers do it."""
    try:
        codec = codecs.lookup(charset)
        return data.decode(codec.name, "replace")
    except (LookupError, UnicodeError, ValueError):
        return data.decode("utf-8", "replace")


def _read_pdf(data: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.pdf")
        path.write_bytes(data)
        pages, problems = read_pdf(path, "page.pdf", last_page=_MAX_PDF_PAGES)
    if not pages:
        raise DataError(problems[0].reason if problems else "a PDF without pages")
    return "\n\n".join(f"page {page.page_number} of {page.total_pages}\n{page.text}" for page in pages)
