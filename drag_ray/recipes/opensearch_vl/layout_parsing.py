"""Layout of the picture of a page: text, tables and their boxes, by OCR."""

import threading

from PIL import Image

from drag_ray.corpus.picture import compute_scale
from drag_ray.corpus.readers.ocr import MAX_PIXELS, TextBox, locate
from drag_ray.errors import DataError, ToolError
from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool
from drag_ray.tools.view_page import PageArguments
from drag_ray.tools.workspace import Workspace

_UNITS = 1000
"""A page is so wide and so high: boxes do not depend on its pixels."""
_one_at_a_time = threading.Lock()
"""The OCR engine of a process is not made for several threads."""
_NUM_KEPT = 64

_kept: dict[str, list[str]] = {}
"""The rows of the pictures that were read last, by their keys, which stand for their bytes: the samples of a question are likely
to ask for the same page, and a call that is late has not read in vain."""


def parse_layout(arguments: PageArguments, workspace: Workspace) -> Observation:
    """The text of a page's picture, a row a line, each piece with its box. Raises ToolError where there is no such page, it has
    no picture, or that cannot be read."""
    page = workspace.find_page(arguments.file, arguments.page)
    try:
        lines = _read_once(page.image, workspace.open_image(page))
    except DataError as error:
        raise ToolError(f"the picture of {page.file}#{page.page_number} cannot be read") from error
    heading = f"{page.file}#{page.page_number}, boxes are left,top,right,bottom in thousandths of the page"
    return Observation("\n".join([heading, *lines]) if lines else f"{page.file}#{page.page_number}: no text in its picture")


def _read_once(key: str, picture: Image.Image) -> list[str]:
    """The rows of a picture, each as a line. Raises DataError where the engine fails on it."""
    lines = _kept.get(key)
    if lines is None:
        with _one_at_a_time:
            lines = _kept.get(key)  # of who was here before
            if lines is None:
                lines = _kept[key] = _read(_fit(picture))
                if len(_kept) > _NUM_KEPT:
                    del _kept[next(iter(_kept))]
    return lines


def _read(image: Image.Image) -> list[str]:
    return [" | ".join(_describe(box, image) for box in row) for row in locate(image)]


def _fit(image: Image.Image) -> Image.Image:
    """The image in RGB, with as many pixels as OCR reads well."""
    scale = compute_scale(image.width, image.height, 1.0, MAX_PIXELS)
    if scale < 1:
        image = image.resize((max(1, int(image.width * scale)), max(1, int(image.height * scale))))
    return image.convert("RGB")


def _describe(box: TextBox, image: Image.Image) -> str:
    edges = (box.left / image.width, box.top / image.height, box.right / image.width, box.bottom / image.height)
    return f"{','.join(str(round(_UNITS * min(max(edge, 0.0), 1.0))) for edge in edges)} {box.text}"


TOOL = Tool(
    name="layout_parsing",
    description="Read the picture of a page: its text and tables, row by row, each piece with its box.",
    arguments=PageArguments,
    run=parse_layout,
)
