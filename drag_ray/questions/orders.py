"""Orders: the questions to write, each of a page or of two that share rare words."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from drag_ray.corpus.near_duplicates import list_words
from drag_ray.questions.config import KindName
from drag_ray.questions.pages import PageText
from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.types import Evidence

_WITHIN_FILE: dict[KindName, bool] = {"pages": True, "documents": False, "comparison": False}
"""Kinds that are asked of two pages, and whether these are of one file."""

_MAX_PAGES = 10
"""A word that stands on more pages links none of them."""
_MIN_LETTERS = 4
_MAX_SHARED = 0.5
"""of the words of the page that has fewer: from there on the pages say the same"""
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class Order:
    """A question that is to be written: its id, its kind, the page or pages, and words that the pages share."""

    id: str
    kind: KindName
    pages: tuple[PageText, ...]
    link: tuple[str, ...] = ()


def plan_orders(pages: Sequence[PageText], kinds: Sequence[KindName], limit: int) -> list[Order]:
    """The questions to write: kinds in turn over the pages, then the next kind of each page, until there are `limit` of them; for
    a limit of 0 one of each page. A kind of two pages is left out of a page that nothing links to another one."""
    return list(islice(_plan(pages, kinds, len(kinds) if limit else 1), limit or None))


def _plan(pages: Sequence[PageText], kinds: Sequence[KindName], turns: int) -> Iterator[Order]:
    links = {within: find_links(pages, within) for within in {_WITHIN_FILE[kind] for kind in kinds if kind in _WITHIN_FILE}}
    for turn in range(turns):
        for number, page in enumerate(pages):
            kind = kinds[(number + turn) % len(kinds)]
            id = f"written-{compute_fingerprint(page.place.file, page.place.page_number, kind)}"
            if kind not in _WITHIN_FILE:
                yield Order(id, kind, (page,))
            elif link := links[_WITHIN_FILE[kind]].get(page.place):
                yield Order(id, kind, (page, link.page), link.words)


class Link(NamedTuple):
    """Another page, and the rarest words that it shares, the rarest first."""

    page: PageText
    words: tuple[str, ...]


def find_links(pages: Sequence[PageText], within_file: bool) -> Mapping[Evidence, Link]:
    """The page that shares most with each page, a word counting the more the fewer pages have it.

    A page without a word that at most ten pages have has none. Words have four letters or more, so pages in languages that are
    written without spaces have none either.

    Args:
        pages: those that may be linked.
        within_file: whether pages of one file are linked, or those of different files.
    """
    words = [{word for word in list_words(page.text) if len(word) >= _MIN_LETTERS and not word.isdecimal()} for page in pages]
    holders = defaultdict[str, list[int]](list)
    for place, held in enumerate(words):
        for word in held:
            holders[word].append(place)
    links: dict[Evidence, Link] = {}
    for place, page in enumerate(pages):
        shared = defaultdict[int, list[str]](list)
        for word in sorted(words[place]):
            if len(holders[word]) <= _MAX_PAGES:
                for other in holders[word]:
                    shared[other].append(word)
        linked = {
            other: sum(1 / len(holders[word]) for word in common)
            for other, common in shared.items()
            if other != place
            and (pages[other].place.file == page.place.file) == within_file
            and len(words[place] & words[other]) < _MAX_SHARED * min(len(words[place]), len(words[other]))
        }
        if linked:
            best = max(linked, key=lambda other: (linked[other], -other))
            named = sorted(shared[best], key=lambda word: len(holders[word]))[:_MAX_NAMED]
            links[page.place] = Link(pages[best], tuple(named))
    return links
