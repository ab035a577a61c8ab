"""Selection of the policy's images: the others leave its prompt, and their names stay in it."""

from pydantic import Field

from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace


class SelectImagesArguments(Arguments):
    """The images to keep."""

    images: list[str] = Field(min_length=1, max_length=100)
    """Names of the images to keep, such as image_2."""


def select_images(arguments: SelectImagesArguments, workspace: Workspace) -> Observation:
    """Keep some images and those of the question; tools still know the others by their names. Raises ToolError where there is no
    image of one of the names."""
    kept = tuple(dict.fromkeys(arguments.images))
    workspace.images.check(kept)
    return Observation(f"Kept: {', '.join(kept)}, and the images of the question.", kept_images=kept)


TOOL = Tool(
    name="select_images",
    description="Keep the images that matter before you; all others but those of the question are shown no longer.",
    arguments=SelectImagesArguments,
    run=select_images,
    shows_images=True,
)
