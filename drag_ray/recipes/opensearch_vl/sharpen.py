"""An image with sharper edges, for blurred text."""

from PIL import Image, ImageFilter
from pydantic import Field

from drag_ray.tools.images.image_tool import Changed, ImageArguments, make_image_tool

RADIUS = 2
_PERCENT = 150
_THRESHOLD = 2


class SharpenArguments(ImageArguments):
    """The strength of sharpening."""

    strength: float = Field(default=1.0, gt=0, le=3, allow_inf_nan=False)
    """1 is usual, 3 the most."""


def sharpen(image: Image.Image, arguments: SharpenArguments) -> Changed:
    """The image after an unsharp mask."""
    mask = ImageFilter.UnsharpMask(RADIUS, max(1, round(_PERCENT * arguments.strength)), _THRESHOLD)
    return Changed(image.filter(mask), f"{arguments.image} sharpened", "Sharpened.")


TOOL = make_image_tool("sharpen", "See a blurred image with sharper edges.", SharpenArguments, sharpen)
