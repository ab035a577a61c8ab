"""Reading a page that a search has named, and the pages around it."""

from pydantic import Field

from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

MAX_NEIGHBOURS = 3


class ReadPageArguments(Arguments):
    """Which pages are read."""

    file: str
    """File of the page, as a search names it."""
    page: int = Field(ge=1)
    """Number of the page, counted from 1."""
    neighbours: int = Field(default=0, ge=0, le=MAX_NEIGHBOURS)
    """How many pages before and after it are read too."""


def read_page(arguments: ReadPageArguments, workspace: Workspace) -> Observation:
    """The text of a page and of its neighbours.

    Raises:
        ToolError: the collection does not have the page.
    """
    file, number = arguments.file, arguments.page
    wanted = workspace.find_page(file, number)
    # The wanted page first, for long texts are cut at their end.
    around = [number - step for step in range(arguments.neighbours, 0, -1)]
    around += [number + step for step in range(1, arguments.neighbours + 1)]
    found = [wanted, *(page for page in (workspace.pages.find_page(file, place) for place in around if place > 0) if page)]
    return Observation("\n\n".join(f"{page.file}#{page.page_number} of {page.total_pages}\n{page.text}" for page in found))


TOOL = Tool(
    name="read_page",
    description="Read the whole text of a page, and of the pages around it.",
    arguments=ReadPageArguments,
    run=read_page,
)
