"""What the tools of one rollout can look at."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from drag_ray.types import Page


class PageSource(Protocol):
    """The collection: the index's `Searcher`."""

    def find_page(self, file: str, page_number: int) -> Page | None:
        """The page that somebody names, None if there is none."""
        ...

    def read_file(self, file: str) -> Iterator[Page]:
        """The pages of a file in order; none if there is no such file."""
        ...


@dataclass(frozen=True)
class Workspace:
    """The collection that a rollout searches."""

    pages: PageSource
