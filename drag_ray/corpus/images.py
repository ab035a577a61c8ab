"""Pages of an image file: one page a picture, or a page a frame of a multi-page TIFF."""

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from drag_ray.corpus.page_images import compute_scale
from drag_ray.corpus.page_reader import Draw, PageReader
from drag_ray.corpus.records import Problem
from drag_ray.errors import DataError
from drag_ray.types import Page

TIFF_SUFFIXES = (".tif", ".tiff")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", *TIFF_SUFFIXES)
_FORMATS = ("PNG", "JPEG", "TIFF")
# Pillow checks little of what a damaged header says and fails where it first uses it.
_DAMAGED = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    LookupError,
    ArithmeticError,
    struct.error,
    Image.DecompressionBombError,
)


def count_image_pages(path: Path) -> int:
    """The number of pages in an image file.

    Raises:
        DataError: the file is missing, or is no image.
    """
    with _open(path) as (_, num_frames):
        return num_frames


def read_image(
    path: Path, file: str, reader: PageReader, first_page: int = 1, last_page: int | None = None
) -> tuple[list[Page], list[Problem]]:
    """The pages of a PNG, JPEG or TIFF in order, and what was set aside.

    Args:
        path: the image.
        file: the name that the pages carry, relative to the documents' folder.
        reader: does OCR and pictures; without OCR a page has no text.
        first_page: the first page to read, from 1.
        last_page: the last page to read; the file's last one by default.

    Raises:
        DataError: the file is missing, or is no image.
    """
    pages: list[Page] = []
    problems: list[Problem] = []
    with _open(path) as (image, total_pages):
        for number in range(first_page, min(last_page or total_pages, total_pages) + 1):
            try:
                page = Page(file, number, total_pages, "", "none")
                pages.append(reader.read(page, _build_draw(image, number), use_ocr=reader.config.ocr != "off"))
            except DataError as error:
                problems.append(Problem(f"{path}, page {number}", f"{error}. Repair the file or remove it."))
    return pages, problems


@contextmanager
def _open(path: Path) -> Iterator[tuple[Image.Image, int]]:
    """An open image and how many pages it has."""
    try:
        image = Image.open(path, formats=_FORMATS)
        # A photograph may carry previews of itself as further frames; only in a TIFF are they pages.
        num_frames = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Check corpus.documents.") from None
    except _DAMAGED as error:
        raise DataError(f"{path}: not an image, or damaged ({error}). Fetch it again or remove it.") from error
    with image:
        yield image, num_frames


def _build_draw(image: Image.Image, number: int) -> Draw:
    """Draws a frame, scaled in one step; pixels are never added."""
    try:
        image.seek(number - 1)
        sheet = _to_rgb(image)
        own_dpi = float(max(image.info.get("dpi") or (0,)))
    except _DAMAGED as error:
        raise DataError(f"cannot be read ({error})") from error

    def draw(dpi: float, max_pixels: int) -> Image.Image:
        scale = compute_scale(*sheet.size, dpi / own_dpi if own_dpi > dpi else 1.0, max_pixels)
        if scale == 1.0:
            return sheet
        size = (math.ceil(sheet.width * scale), math.ceil(sheet.height * scale))
        return sheet.resize(size, Image.Resampling.LANCZOS)

    return draw


def _to_rgb(image: Image.Image) -> Image.Image:
    """The picture upright, on white where it is transparent."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I;16"):  # Pillow would clip it to the lowest 8 bits
        upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
    if upright.has_transparency_data:
        sheet = Image.new("RGBA", upright.size, "white")
        upright = Image.alpha_composite(sheet, upright.convert("RGBA"))
    return upright.convert("RGB")
