"""Documents on disk: PDFs, images, texts and tables of pages, which are JSONL (DRAG's OCR format) or Parquet."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from drag_ray.corpus.picture import fit_picture, to_rgb
from drag_ray.corpus.problems import Problem, read_one
from drag_ray.corpus.readers.page_reader import PageReader, Render
from drag_ray.corpus.readers.pdf import count_pdf_pages, read_pdf
from drag_ray.corpus.readers.text_documents import TEXT_SUFFIXES, read_text_document
from drag_ray.corpus.records import (
    FILE_COLUMNS,
    PAGE_COLUMNS,
    SUFFIXES,
    get_field,
    read_name,
    read_records,
    read_text,
    refuse_page_zero,
    to_number,
    to_page_number,
)
from drag_ray.corpus.text import to_printable
from drag_ray.errors import DataError
from drag_ray.storage.file_access import HIDDEN
from drag_ray.types import Page

TIFF_SUFFIXES = (".tif", ".tiff")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", *TIFF_SUFFIXES)
_FORMATS = ("PNG", "JPEG", "TIFF")


def count_image_pages(path: Path) -> int:
    """The number of pages in an image file. Raises whatever Pillow does if it is none, or is damaged."""
    with _open(path) as (_, num_frames):
        return num_frames


def read_image(
    path: Path, file: str, reader: PageReader, first_page: int = 1, last_page: int | None = None
) -> tuple[list[Page], list[Problem]]:
    """The pages of a PNG, JPEG or TIFF in order, and what was set aside.

    Pillow checks little of what a damaged header says and fails where it first uses it, with any exception: a page at which
    it does is set aside, and a file that it cannot open raises.

    Args:
        file: the name that the pages carry, relative to the documents' folder.
        reader: does OCR and page images; without OCR a page has no text.
        last_page: the last page to read; the file's last one by default.

    Raises:
        DataError: it has too many pages.
    """
    pages: list[Page] = []
    problems: list[Problem] = []
    with _open(path) as (image, total_pages):
        reader.check_length(path, total_pages)
        for number in range(first_page, min(last_page or total_pages, total_pages) + 1):
            bare = Page(file, number, total_pages, "", "none")
            page = read_one("broken_page", f"{path}, page {number}", _read_frame, image, bare, reader)
            problems.append(page) if isinstance(page, Problem) else pages.append(page)
    return pages, problems


@contextmanager
def _open(path: Path) -> Generator[tuple[Image.Image, int]]:
    """An open image and how many pages it has."""
    with Image.open(path, formats=_FORMATS) as image:
        # A photograph may carry previews of itself as further frames; only in a TIFF are they pages.
        yield image, getattr(image, "n_frames", 1) if image.format == "TIFF" else 1


def _read_frame(image: Image.Image, page: Page, reader: PageReader) -> Page:
    return reader.read(page, _build_render(image, page.page_number), use_ocr=reader.config.ocr != "off")


def _build_render(image: Image.Image, number: int) -> Render:
    """Renders a frame, scaled in one step; pixels are never added."""
    image.seek(number - 1)
    frame = to_rgb(image)
    own_dpi = float(max(image.info.get("dpi") or (0,)))

    def render(dpi: float, max_pixels: int) -> Image.Image:
        return fit_picture(frame, max_pixels, dpi / own_dpi if own_dpi > dpi else 1.0)

    return render


_PDF = ".pdf"
_SUFFIXES = (_PDF, *IMAGE_SUFFIXES, *TEXT_SUFFIXES, *SUFFIXES)


@dataclass(frozen=True, slots=True)
class Span:
    """A document, or a range of its pages; `last_page` None stands for its last page."""

    path: Path
    first_page: int = 1
    last_page: int | None = None

    @property
    def name(self) -> str:
        return str(self.path) if self.last_page is None else f"{self.path}, pages {self.first_page}-{self.last_page}"


def list_documents(root: Path, *beside: Path | None) -> tuple[list[Path], list[Problem]]:
    """The documents at `root`, a file or a folder searched recursively, and what else lies there.

    Tables of pages come first, then the others, by path: the order decides which page counts where several documents hold
    the same, and what a table says was chosen by somebody. Hidden files and folders, lock files of office programs and
    the files beside the documents are passed over; everything else that is no document is a problem.

    Args:
        beside: the files of questions and metadata, in case that they lie there too.

    Raises:
        DataError: there is nothing at `root`, or no document in it.
    """
    if not root.exists():
        raise DataError(f"corpus.documents {root}: no such file or folder. Check the path, as the driver and the workers see it.")
    found: list[Path] = []
    problems: list[Problem] = []
    for path in _walk(root, problems) if root.is_dir() else [root]:
        if any(other and path.name == other.name and os.path.realpath(path) == os.path.realpath(other) for other in beside):
            continue
        fault = read_one("broken_file", str(path), _find_fault, path, root)
        found.append(path) if fault is None else problems.append(fault)
    found = _read_once(found, problems)
    problems.sort(key=lambda problem: problem.place)
    if not found:
        first = f" First of {len(problems)} other files: {problems[0].place}: {problems[0].reason}" if problems else ""
        raise DataError(f"corpus.documents {root}: holds no document. Expected {', '.join(_SUFFIXES)}.{first}")
    return sorted(found, key=lambda path: (not path.name.lower().endswith(SUFFIXES), path.parts)), problems


def count_pages(path: Path) -> int:
    """The number of pages of a document that is read by ranges of pages; 1 for any other and for one that is broken."""
    suffix = path.suffix.lower()
    if suffix != _PDF and suffix not in TIFF_SUFFIXES:
        return 1
    num_pages = read_one("broken_file", str(path), count_pdf_pages if suffix == _PDF else count_image_pages, path)
    return 1 if isinstance(num_pages, Problem) else num_pages  # reading it says what is wrong


def read_document(span: Span, root: Path, reader: PageReader) -> tuple[list[Page], list[Problem]]:
    """The pages of a document and what was set aside; a document that cannot be read is a problem, not an error.

    Pages of a table carry the file that the table says, all others the path of their document relative to `root`.
    """
    outcome = read_one("broken_file", str(span.path), _read_span, span, root, reader)
    return ([], [outcome]) if isinstance(outcome, Problem) else outcome


def _read_span(span: Span, root: Path, reader: PageReader) -> tuple[list[Page], list[Problem]]:
    path, suffix = span.path, span.path.suffix.lower()
    file = path.relative_to(root).as_posix() if root.is_dir() else path.name
    if suffix == _PDF:
        return read_pdf(path, file, reader, span.first_page, span.last_page)
    if suffix in IMAGE_SUFFIXES:
        return read_image(path, file, reader, span.first_page, span.last_page)
    if suffix in TEXT_SUFFIXES:
        return read_text_document(path, file, reader), []
    return read_pages(path)


def _walk(root: Path, problems: list[Problem]) -> Iterator[Path]:
    """Files and links below a folder, hidden ones aside; adds folders that cannot be listed to the problems."""

    def add(error: OSError) -> None:
        reason = f"a folder that cannot be listed ({error.strerror}). Change its permissions or move it away."
        problems.append(Problem(str(error.filename), reason, "broken_file"))

    for folder, subfolders, names in os.walk(root, onerror=add):
        subfolders[:] = [name for name in subfolders if not name.startswith(HIDDEN)]
        links = [name for name in subfolders if Path(folder, name).is_symlink()]
        yield from (Path(folder, name) for name in (*links, *names) if not name.startswith(HIDDEN))


def _read_once(found: list[Path], problems: list[Problem]) -> list[Path]:
    """The documents without links to others of them, which are added to the problems."""
    if not any(path.is_symlink() for path in found):
        return found
    files = {os.path.realpath(path): path for path in found if not path.is_symlink()}
    kept: list[Path] = []
    for path in sorted(found, key=lambda path: (path.is_symlink(), path)):
        first = files.setdefault(os.path.realpath(path), path)
        if first == path:
            kept.append(path)
        else:
            problems.append(Problem(str(path), f"a link to {first.name}, which is read itself. Remove it.", "linked_file"))
    return kept


def _find_fault(path: Path, root: Path) -> Problem | None:
    """The problem if a file is no document."""
    place, name = str(path), path.name.lower()
    if path.is_dir():
        return Problem(place, "a link to a folder, which is not followed. Move the folder itself here.", "unknown_file")
    if not name.endswith(_SUFFIXES):
        kind = f"a {path.suffix.lower()} file" if path.suffix else "a file without a suffix"
        reason = f"{kind}, expected {', '.join(_SUFFIXES)}. Convert it, to PDF for example, or move it away."
        return Problem(place, reason, "unknown_file")
    if name.startswith("questions.") and name.endswith(SUFFIXES) and path != root:
        reason = "named as a table of questions and so not read as pages. Give it as corpus.questions, or rename it."
        return Problem(place, reason, "unknown_file")
    if path.is_symlink() and root.is_dir() and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        reason = "a link that leads out of the folder of the documents, which is not followed. Copy the file itself here."
        return Problem(place, reason, "linked_file")
    if not path.is_file():
        return Problem(place, "no regular file: a link to nothing, a pipe or a socket. Move it away.", "broken_file")
    if str(path) != to_printable(str(path)):
        return Problem(place, "its path is not UTF-8, so that no question can name its pages. Rename it.", "broken_file")
    return None


_SOURCE_COLUMNS = ("text_source", "service")
_COLUMNS = (*FILE_COLUMNS, *PAGE_COLUMNS, "total_pages", "text", *_SOURCE_COLUMNS)


def read_pages(path: Path) -> tuple[list[Page], list[Problem]]:
    """Pages of a `.jsonl`, `.jsonl.gz` or `.parquet` file in their order, and what was set aside.

    A record is `{"file", "page_number" or "page", "text"[, "total_pages"][, "service" or "text_source"]}`. A page that
    comes again is set aside; a missing `total_pages` becomes the largest page number of the file.

    Raises:
        DataError: the file is missing, of another kind, or counts its pages from 0.
    """
    pages: dict[tuple[str, int], Page] = {}
    problems: list[Problem] = []
    last_pages: dict[str, int] = {}
    for place, page in read_records(path, _parse_page, _COLUMNS):
        if isinstance(page, Problem):
            problems.append(page)
            continue
        key = (page.file, page.page_number)
        if key in pages:
            reason = f"page {page.page_number} of {page.file!r} comes again; the first one is kept"
            problems.append(Problem(place, reason, "duplicate"))
            continue
        pages[key] = page
        last_pages[page.file] = max(last_pages.get(page.file, 0), page.total_pages, page.page_number)
    refuse_page_zero(path, problems)
    return [replace(page, total_pages=last_pages[page.file]) for page in pages.values()], problems


def _parse_page(record: dict[str, Any]) -> Page:
    number_name, number = get_field(record, PAGE_COLUMNS)
    total = record.get("total_pages")
    return Page(
        file=read_name(record, *FILE_COLUMNS, required=True),
        page_number=to_page_number(number, number_name),
        total_pages=0 if total is None else to_number(total, "total_pages"),
        text=read_text(record, "text"),
        text_source=read_text(record, *_SOURCE_COLUMNS) or "jsonl",
    )
