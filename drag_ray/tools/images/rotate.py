"""An image turned, for text that does not stand upright."""

from PIL import Image
from pydantic import Field

from drag_ray.corpus.picture import fit_picture
from drag_ray.tools.images.image_tool import Changed, ImageArguments, make_image_tool
from drag_ray.tools.images.rollout_images import MAX_PIXELS


class RotateArguments(ImageArguments):
    """The angle of a rotation."""

    degrees: float = Field(ge=-360, le=360, allow_inf_nan=False)
    """Degrees clockwise; below 0, counterclockwise."""


def rotate(image: Image.Image, arguments: RotateArguments) -> Changed:
    """The whole image turned about its middle, white around it."""
    turned = image.rotate(-arguments.degrees, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    caption = f"{arguments.image} turned by {arguments.degrees:g} degrees"
    return Changed(fit_picture(turned, MAX_PIXELS), caption, "Turned.")


TOOL = make_image_tool("rotate", "See an image turned clockwise.", RotateArguments, rotate)
