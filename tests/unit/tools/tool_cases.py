"""What tools look at."""

from collections.abc import Iterator

from drag_ray.types import Page


class Pages:
    """Pages in memory, as the tools see an index."""

    def __init__(self, *texts: str) -> None:
        self._pages = [Page("manual.pdf", number, len(texts), text) for number, text in enumerate(texts, start=1)]

    def find_page(self, file: str, page_number: int) -> Page | None:
        return next((page for page in self._pages if (page.file, page.page_number) == (file, page_number)), None)

    def read_file(self, file: str) -> Iterator[Page]:
        return (page for page in self._pages if page.file == file)
