"""Pages of an image file: one page a file, or a page a frame of a multi-page TIFF."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from drag_ray.corpus.picture import fit_picture, to_rgb
from drag_ray.corpus.problems import Problem, read_one
from drag_ray.corpus.readers.page_reader import PageReader, Render
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
        path: the image.
        file: the name that the pages carry, relative to the documents' folder.
        reader: does OCR and page images; without OCR a page has no text.
        first_page: the first page to read, from 1.
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
