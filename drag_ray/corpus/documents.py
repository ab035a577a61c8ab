"""Documents on disk: PDFs and tables of pages."""

from pathlib import Path

from drag_ray.corpus.pages import read_pages
from drag_ray.corpus.pdf import read_pdf
from drag_ray.corpus.records import SUFFIXES, Problem
from drag_ray.errors import DataError
from drag_ray.types import Page


def list_documents(root: Path) -> list[Path]:
    """The documents at `root`, a file or a folder searched recursively, sorted by path.

    Hidden files and tables named `questions.*` are no documents.

    Raises:
        DataError: there is nothing at `root`, or no document in it.
    """
    if not root.exists():
        raise DataError(f"corpus.documents {root}: no such file or folder. Check the path, as the driver and the workers see it.")
    found = [root] if root.is_file() else sorted(path for path in root.rglob("*") if _is_document(path, root))
    if not found:
        raise DataError(f"corpus.documents {root}: holds no document. Expected .pdf, {', '.join(SUFFIXES)}.")
    return found


def read_document(path: Path, root: Path) -> tuple[list[Page], list[Problem]]:
    """The pages of one document and what was set aside; a document that cannot be read is a problem, not an error.

    Pages of a PDF carry its path relative to `root`; pages of a table carry the file that the table says.
    """
    try:
        if path.suffix.lower() == ".pdf":
            file = path.relative_to(root).as_posix() if root.is_dir() else path.name
            return read_pdf(path, file), []
        return read_pages(path)
    except DataError as error:
        return [], [Problem(str(path), str(error))]


def _is_document(path: Path, root: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    name = path.name.lower()
    return name.endswith((".pdf", *SUFFIXES)) and not is_hidden and not name.startswith("questions.") and path.is_file()
