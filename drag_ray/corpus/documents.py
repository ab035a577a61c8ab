"""Documents on disk: PDFs, images and tables of pages."""

from dataclasses import dataclass
from pathlib import Path

from drag_ray.corpus.images import IMAGE_SUFFIXES, TIFF_SUFFIXES, count_image_pages, read_image
from drag_ray.corpus.page_reader import PageReader
from drag_ray.corpus.pages import read_pages
from drag_ray.corpus.pdf import count_pdf_pages, read_pdf
from drag_ray.corpus.records import SUFFIXES, Problem
from drag_ray.errors import DataError
from drag_ray.types import Page

_PDF = ".pdf"
_SUFFIXES = (_PDF, *IMAGE_SUFFIXES, *SUFFIXES)


@dataclass(frozen=True, slots=True)
class Span:
    """A document, or a range of its pages; `last_page` None stands for its last page."""

    path: Path
    first_page: int = 1
    last_page: int | None = None


def list_documents(root: Path) -> list[Path]:
    """The documents at `root`, a file or a folder searched recursively: tables of pages first, then the others, by path.

    The order decides which page counts where several documents hold the same; what a table says was chosen by somebody.
    Hidden files and tables named `questions.*` are no documents.

    Raises:
        DataError: there is nothing at `root`, or no document in it.
    """
    if not root.exists():
        raise DataError(f"corpus.documents {root}: no such file or folder. Check the path, as the driver and the workers see it.")
    found = [root] if root.is_file() else [path for path in root.rglob("*") if _is_document(path, root)]
    if not found:
        raise DataError(f"corpus.documents {root}: holds no document. Expected {', '.join(_SUFFIXES)}.")
    return sorted(found, key=lambda path: (not path.name.lower().endswith(SUFFIXES), path))


def count_pages(path: Path) -> int:
    """The number of pages of a document that is read by ranges of pages; 1 for any other and for one that is broken."""
    suffix = path.suffix.lower()
    try:
        if suffix == _PDF:
            return count_pdf_pages(path)
        return count_image_pages(path) if suffix in TIFF_SUFFIXES else 1
    except DataError:
        return 1  # reading it says what is wrong


def read_document(span: Span, root: Path, reader: PageReader) -> tuple[list[Page], list[Problem]]:
    """The pages of a document and what was set aside; a document that cannot be read is a problem, not an error.

    Pages of a PDF or an image carry its path relative to `root`; pages of a table carry the file that the table says.
    """
    path, suffix = span.path, span.path.suffix.lower()
    file = path.relative_to(root).as_posix() if root.is_dir() else path.name
    try:
        if suffix == _PDF:
            return read_pdf(path, file, reader, span.first_page, span.last_page)
        if suffix in IMAGE_SUFFIXES:
            return read_image(path, file, reader, span.first_page, span.last_page)
        return read_pages(path)
    except DataError as error:
        return [], [Problem(str(path), str(error))]


def _is_document(path: Path, root: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    name = path.name.lower()
    return name.endswith(_SUFFIXES) and not is_hidden and not name.startswith("questions.") and path.is_file()
