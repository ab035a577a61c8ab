"""Links of documents: the addresses as they stand on a page, in a table of their own, and the documents that they name."""

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from drag_ray import schemas
from drag_ray.corpus.near_duplicates import list_words
from drag_ray.corpus.text import to_encodable
from drag_ray.search.page_table import FileNames, normalise_name
from drag_ray.types import Evidence, Page

TABLE_NAME = "links.parquet"
_MAX_LINKS = 1_000
"""of a page, the first ones"""
MAX_CHARS = 1_000
_MAX_PAGE_CHARS = 65_536
"""of all links of a page"""
_MAX_FOLDERS = 10
"""of an absolute address that are compared"""
_ELSEWHERE = re.compile(r"#|(?!https?:|file:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
"""A heading of the same document, mailto:, javascript: and whatever else leads to no document."""
_COMMON = frozenset(("index", "readme", "home", "default"))
_PAGE = re.compile(r"(?:^|&)page=(\d{1,9})(?:&|$)")


@dataclass(frozen=True, slots=True)
class LinkingPage(Page):
    """A page as it was read, with the addresses of its links: search and whoever shows a page do not need them."""

    links: tuple[str, ...] = ()


def add_links(page: Page, addresses: Iterable[str]) -> Page:
    """The page with those addresses that may lead to a document, each once; as it is where there are none."""
    kept: dict[str, None] = {}
    num_chars = 0
    for address in addresses:
        text = to_encodable(address).strip() if len(address) <= MAX_CHARS else ""
        if text and text not in kept and not _ELSEWHERE.match(text):
            num_chars += len(text)
            if len(kept) == _MAX_LINKS or num_chars > _MAX_PAGE_CHARS:
                break
            kept[text] = None
    return LinkingPage(**asdict(page), links=tuple(kept)) if kept else page


def read_links(index_dir: Path) -> Mapping[Evidence, tuple[str, ...]]:
    """The addresses on each page of the index that has any. Raises DataError: the table is missing or unreadable."""
    table = schemas.read_table(index_dir / TABLE_NAME, schemas.LINKS)
    rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    return {Evidence(file, page_number): tuple(links) for file, page_number, links in rows}


class LinkedFiles:
    """The documents of a collection, found by addresses.

    Args:
        names: their files, each once.
    """

    def __init__(self, names: Iterable[str]) -> None:
        files = list(names)
        self._names = FileNames(files)
        self._find_end = cache(self._search_end)  # menus repeat their addresses on every page
        self._bare: dict[str, str | None] = {}
        for file in files:
            stem = posixpath.splitext(normalise_name(file))[0]
            self._bare[stem] = None if stem in self._bare else file

    def find(self, file: str, address: str) -> tuple[str, int | None] | None:
        """The document that an address in a document names, and the number of a page where it ends with `#page=`.

        A relative path starts in the folder of the document, and its suffix may be left out. An absolute one names the document
        whose path it ends with, the longest one, where that has a folder (two for an `index.html`, which is anywhere) or a name
        of two words. None where no document is named.
        """
        try:
            parts = urlsplit(address)
        except ValueError:
            return None
        path, page = unquote(parts.path), _PAGE.search(parts.fragment)
        if parts.netloc or path.startswith("/"):
            found = self._find_end(f"{parts.netloc}/{path}")
        else:
            found = self._find(posixpath.join(posixpath.dirname(file), path)) if path else file
        return (found, int(page[1]) if page else None) if found else None

    def _search_end(self, path: str) -> str | None:
        parts = [part for part in path.split("/") if part]
        for length in range(min(len(parts), _MAX_FOLDERS), 0, -1):
            words = list_words(posixpath.splitext(parts[-1])[0])
            is_common = len(words) < 2 and _COMMON.issuperset(words)
            telling = length == len(parts) or length > 1 + is_common or len(words) > 1
            if telling and (found := self._find("/".join(parts[-length:]))):
                return found
        return None

    def _find(self, path: str) -> str | None:
        return self._names.find(path) or self._bare.get(normalise_name(path))
