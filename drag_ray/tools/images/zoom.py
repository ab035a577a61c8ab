"""A place of an image from near: the part around it, enlarged to the size of the whole."""

from PIL import Image
from pydantic import Field

from drag_ray.tools.images.image_tool import UNITS, Changed, ImageArguments, Place, make_image_tool

MAX_FACTOR = 10.0


class ZoomArguments(ImageArguments):
    """The middle and factor of a zoom."""

    x: Place = UNITS / 2
    """Middle of the part, from the left edge, in thousandths of the image."""
    y: Place = UNITS / 2
    """Middle of the part, from the top edge, in thousandths of the image."""
    factor: float = Field(default=2.0, ge=1.1, le=MAX_FACTOR, allow_inf_nan=False)
    """How many times larger the part is shown."""


def zoom(image: Image.Image, arguments: ZoomArguments) -> Changed:
    """The part around a place, moved to lie within the image."""
    width, height = image.width / arguments.factor, image.height / arguments.factor
    left = min(max(arguments.x * image.width / UNITS - width / 2, 0), image.width - width)
    top = min(max(arguments.y * image.height / UNITS - height / 2, 0), image.height - height)
    box = (left, top, left + width, top + height)
    enlarged = image.resize(image.size, Image.Resampling.LANCZOS, box=box)
    sides = zip(box, (image.width, image.height) * 2, strict=True)
    place = ",".join(str(round(UNITS * edge / side)) for edge, side in sides)
    caption = f"{arguments.image} at {place}, {arguments.factor:g} times as large"
    return Changed(enlarged, caption, "Enlarged.")


TOOL = make_image_tool("zoom", "See the part of an image around a place enlarged.", ZoomArguments, zoom)
