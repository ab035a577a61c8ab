"""An image with sharper edges, for blurred text."""

from PIL import ImageFilter
from pydantic import Field

from drag_ray.tools.images.arguments import ImageArguments
from drag_ray.tools.observation import Observation, ObservedImage
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

RADIUS = 2
_PERCENT = 150
_THRESHOLD = 2


class SharpenArguments(ImageArguments):
    """The strength of sharpening."""

    strength: float = Field(default=1.0, gt=0, le=3, allow_inf_nan=False)
    """1 is usual, 3 the most."""


def sharpen(arguments: SharpenArguments, workspace: Workspace) -> Observation:
    """The image after an unsharp mask.

    Raises:
        ToolError: there is no such image.
    """
    image = workspace.images.open(arguments.image)
    mask = ImageFilter.UnsharpMask(RADIUS, max(1, round(_PERCENT * arguments.strength)), _THRESHOLD)
    return Observation("Sharpened.", (ObservedImage(image.filter(mask), f"{arguments.image} sharpened"),))


TOOL = Tool(
    name="sharpen",
    description="See a blurred image with sharper edges.",
    arguments=SharpenArguments,
    run=sharpen,
    shows_images=True,
)
