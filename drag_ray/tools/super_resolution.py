"""A small image with more pixels: Lanczos interpolation and an unsharp mask, without a model."""

from PIL import Image, ImageFilter
from pydantic import Field

from drag_ray.tools.image_arguments import ImageArguments
from drag_ray.tools.observation import Observation, ObservedImage
from drag_ray.tools.rollout_images import check_size
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

MAX_FACTOR = 4
_PERCENT = 80
_THRESHOLD = 2


class SuperResolutionArguments(ImageArguments):
    """How many pixels an image gets."""

    factor: int = Field(default=2, ge=2, le=MAX_FACTOR)
    """How many times wider and higher the image becomes."""


def super_resolve(arguments: SuperResolutionArguments, workspace: Workspace) -> Observation:
    """The enlarged image.

    Raises:
        ToolError: there is no such image, or it would become too large.
    """
    image = workspace.images.open(arguments.image)
    size = (image.width * arguments.factor, image.height * arguments.factor)
    check_size(*size)
    enlarged = image.resize(size, Image.Resampling.LANCZOS)
    sharp = enlarged.filter(ImageFilter.UnsharpMask(arguments.factor, _PERCENT, _THRESHOLD))
    caption = f"{arguments.image} with {arguments.factor} times the resolution"
    return Observation(f"{sharp.width} x {sharp.height} pixels.", (ObservedImage(sharp, caption),))


TOOL = Tool(
    name="super_resolution",
    description="See a small image with more pixels.",
    arguments=SuperResolutionArguments,
    run=super_resolve,
    shows_images=True,
)
