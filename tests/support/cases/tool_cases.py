"""Pages for tools to look at."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from drag_ray.types import Page


class Pages:
    """Pages in memory, as the tools see an index."""

    shown_rows = None

    def __init__(self, *texts: str, index_dir: Path = Path("no-such-folder/search_index"), images: Sequence[str] = ()) -> None:
        self.index_dir = index_dir
        keys = [*images, *[""] * len(texts)]
        self._pages = [
            Page("manual.pdf", number, len(texts), text, image=key)
            for number, (text, key) in enumerate(zip(texts, keys, strict=False), start=1)
        ]

    def find_page(self, file: str, page_number: int) -> Page | None:
        return next((page for page in self._pages if (page.file, page.page_number) == (file, page_number)), None)

    def read_file(self, file: str) -> Iterator[Page]:
        return (page for page in self._pages if page.file == file)
