"""Workspace of one rollout's tools."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from drag_ray.corpus.image_store import DIR_NAME
from drag_ray.errors import ToolError
from drag_ray.tools.images.rollout_images import RolloutImages
from drag_ray.types import Page

if TYPE_CHECKING:
    import numpy as np


class PageSource(Protocol):
    """The collection: the index's `Searcher`. `index_dir`: the search index, beside which the store of page images lies."""

    index_dir: Path

    @property
    def shown_rows(self) -> "np.ndarray | None":
        """The pages of the index that may be found, by their rows: bool (pages,); None for all."""
        ...

    def find_page(self, file: str, page_number: int) -> Page | None:
        """The page that somebody names, None if there is none."""
        ...

    def read_file(self, file: str) -> Iterator[Page]:
        """The pages of a file in order; none if there is no such file."""
        ...


@dataclass(frozen=True)
class Workspace:
    """The collection that a rollout searches, with the pictures of its pages, and the images that the rollout has seen."""

    pages: PageSource
    images: RolloutImages = field(default_factory=RolloutImages)

    def find_page(self, file: str, number: int) -> Page:
        """The page that the policy names. Raises ToolError where the collection does not have it; says what it has."""
        file = self.resolve_file(file)
        page = self.pages.find_page(file, number)
        if page is None:
            known = next(iter(self.pages.read_file(file)), None)
            have = f"it has {known.total_pages} pages" if known else "there is no such file; give the name as a search shows it"
            raise ToolError(f"no page {number} of {file[:200]!r}: {have}")
        return page

    def resolve_file(self, file: str) -> str:
        """The name of the file that the policy means: where it has copied the number of a page with it, as pages are headed
        (`manual.pdf#7`), the name before that. A file that is called so itself comes first."""
        name, mark, number = file.rpartition("#")
        is_page = bool(mark) and number.isdecimal() and next(self.pages.read_file(file), None) is None
        return name if is_page and next(self.pages.read_file(name), None) else file

    def open_image(self, page: Page) -> Any:
        """The picture of a page (PIL). Raises ToolError where it has none, or that cannot be read."""
        if not page.image:
            raise ToolError(f"{page.file}#{page.page_number} has no picture")
        from drag_ray.corpus.image_store import ImageStores

        root = self.pages.index_dir.parent / DIR_NAME
        # What the rollout is shown in place of the index's picture lies in its own store.
        images = RolloutImages(ImageStores([root])) if (root / page.image).is_file() else self.images
        try:
            return images.open_key(page.image)
        except ToolError as error:
            raise ToolError(f"the picture of {page.file}#{page.page_number} cannot be read") from error
