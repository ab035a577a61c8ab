"""Reading a page that a search has named, and the pages around it."""

from pydantic import Field

from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool
from drag_ray.tools.view_page import PageArguments
from drag_ray.tools.workspace import Workspace

MAX_NEIGHBOURS = 3


class ReadPageArguments(PageArguments):
    """The pages to read."""

    neighbours: int = Field(default=0, ge=0, le=MAX_NEIGHBOURS)
    """How many pages before and after it are read too."""

    def list_numbers(self) -> list[int]:
        """The pages' numbers: the wanted one first, for long texts are cut at their end, then those around it in their order."""
        around = range(max(1, self.page - self.neighbours), self.page + self.neighbours + 1)
        return [self.page, *(number for number in around if number != self.page)]


def read_page(arguments: ReadPageArguments, workspace: Workspace) -> Observation:
    """The text of a page and of its neighbours. Raises ToolError where the collection does not have the page."""
    wanted, *around = arguments.list_numbers()
    found = [workspace.find_page(arguments.file, wanted)]
    found += [page for number in around if (page := workspace.pages.find_page(found[0].file, number))]
    return Observation("\n\n".join(f"{page.file}#{page.page_number} of {page.total_pages}\n{page.text}" for page in found))


TOOL = Tool(
    name="read_page",
    description="Read the whole text of a page, and of the pages around it.",
    arguments=ReadPageArguments,
    run=read_page,
)
