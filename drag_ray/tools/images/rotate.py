"""An image turned, for text that does not stand upright."""

from PIL import Image
from pydantic import Field

from drag_ray.corpus.picture import fit_picture
from drag_ray.tools.images.arguments import ImageArguments
from drag_ray.tools.images.rollout_images import MAX_PIXELS
from drag_ray.tools.observation import Observation, ObservedImage
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace


class RotateArguments(ImageArguments):
    """The angle of a rotation."""

    degrees: float = Field(ge=-360, le=360, allow_inf_nan=False)
    """Degrees clockwise; below 0, counterclockwise."""


def rotate(arguments: RotateArguments, workspace: Workspace) -> Observation:
    """The whole image turned about its middle, white around it.

    Raises:
        ToolError: there is no such image.
    """
    image = workspace.images.open(arguments.image)
    turned = image.rotate(-arguments.degrees, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    caption = f"{arguments.image} turned by {arguments.degrees:g} degrees"
    return Observation("Turned.", (ObservedImage(fit_picture(turned, MAX_PIXELS), caption),))


TOOL = Tool(
    name="rotate",
    description="See an image turned clockwise.",
    arguments=RotateArguments,
    run=rotate,
    shows_images=True,
)
