"""Tools that make one image of another, and their arguments. Places are in thousandths of the image, whatever its pixels."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from PIL import Image
from pydantic import Field

from drag_ray.errors import ToolError
from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation, ObservedImage
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

UNITS = 1000
"""An image is so wide and so high."""
Place = Annotated[float, Field(ge=0, le=UNITS, allow_inf_nan=False)]


class ImageArguments(Arguments):
    """The image to work on."""

    image: str
    """Name of the image, such as image_1."""


class BoxArguments(ImageArguments):
    """A box within an image."""

    box: list[Place] = Field(min_length=4, max_length=4)
    """Left, top, right and bottom edge of the part, each from 0 to 1000 thousandths of the image."""


def to_pixels(box: list[float], image: Image.Image) -> tuple[int, int, int, int]:
    """A box in whole pixels. Raises ToolError where it is empty."""
    left, top, right, bottom = box
    if left >= right or top >= bottom:
        raise ToolError(f"the box {format_numbers(box)} is empty: give left, top, right and bottom, in this order")
    x, y = int(left * image.width / UNITS), int(top * image.height / UNITS)
    x, y = min(x, image.width - 1), min(y, image.height - 1)
    return x, y, max(x + 1, round(right * image.width / UNITS)), max(y + 1, round(bottom * image.height / UNITS))


def format_numbers(numbers: list[float]) -> str:
    """Numbers as a caption has them."""
    return ",".join(f"{number:g}" for number in numbers)


class Changed(NamedTuple):
    """An image that was made of another, its caption, and what the policy is told beside it; empty for its size."""

    picture: Image.Image
    caption: str
    text: str = ""


def make_image_tool(
    name: str, description: str, arguments: type[ImageArguments], change: Callable[[Image.Image, Any], Changed]
) -> Tool:
    """A tool that shows what `change` makes of the image that its arguments name, which it may refuse with a ToolError."""

    def run(given: Any, workspace: Workspace) -> Observation:
        changed = change(workspace.images.open(given.image), given)
        text = changed.text or f"{changed.picture.width} x {changed.picture.height} pixels."
        return Observation(text, (ObservedImage(changed.picture, changed.caption),))

    return Tool(name, description, arguments, run, shows_images=True)
