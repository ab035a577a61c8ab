"""A part of an image, as it is."""

from drag_ray.tools.images.arguments import BoxArguments, format_numbers, to_pixels
from drag_ray.tools.observation import Observation, ObservedImage
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace


def crop(arguments: BoxArguments, workspace: Workspace) -> Observation:
    """The part of an image within a box.

    Raises:
        ToolError: there is no such image, or the box is empty.
    """
    image = workspace.images.open(arguments.image)
    part = image.crop(to_pixels(arguments.box, image))
    caption = f"crop of {arguments.image} at {format_numbers(arguments.box)}"
    return Observation(f"{part.width} x {part.height} pixels.", (ObservedImage(part, caption),))


TOOL = Tool(
    name="crop",
    description="See a part of an image by itself.",
    arguments=BoxArguments,
    run=crop,
    shows_images=True,
)
