"""The picture of a page, as an image that other tools can work on."""

from pydantic import Field

from drag_ray.errors import ToolError
from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation, ObservedImage
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace


class PageArguments(Arguments):
    """A page of the collection."""

    file: str
    """File of the page, as a search names it."""
    page: int = Field(ge=1)
    """Number of the page, counted from 1."""


def view_page(arguments: PageArguments, workspace: Workspace) -> Observation:
    """The picture of a page. Raises ToolError where the collection does not have the page, or no picture of it."""
    page = workspace.find_page(arguments.file, arguments.page)
    name = f"{page.file}#{page.page_number}"
    if not page.image:
        raise ToolError(f"{name} has no picture")
    return Observation(f"{name} of {page.total_pages}", (ObservedImage(page.image, name),))


TOOL = Tool(name="view_page", description="See the picture of a page.", arguments=PageArguments, run=view_page, shows_images=True)
