"""Orders: the questions to write, each of a page or of a walk over pages that are linked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from drag_ray.questions.config import WALKS, KindName
from drag_ray.questions.links import find_walk, link_pages
from drag_ray.questions.pages import PageText
from drag_ray.storage.artifacts import compute_fingerprint


@dataclass(frozen=True, slots=True)
class Order:
    """A question that is to be written: its id, its kind, the page or pages, and what links each to the one before it."""

    id: str
    kind: KindName
    pages: tuple[PageText, ...]
    links: tuple[tuple[str, ...], ...] = ()


def plan_orders(pages: Sequence[PageText], kinds: Sequence[KindName], limit: int) -> list[Order]:
    """The questions to write: kinds in turn over the pages, then the next kind of each page, until there are `limit` of them; for
    a limit of 0 one of each page. A kind of several pages is left out of a page from which no walk leads over so many."""
    return list(islice(_plan(pages, kinds, len(kinds) if limit else 1), limit or None))


def _plan(pages: Sequence[PageText], kinds: Sequence[KindName], turns: int) -> Iterator[Order]:
    graphs = {within: link_pages(pages, within) for within in {WALKS[kind][1] for kind in kinds if kind in WALKS}}
    for turn in range(turns):
        for number, page in enumerate(pages):
            kind = kinds[(number + turn) % len(kinds)]
            id = f"written-{compute_fingerprint(page.place.file, page.place.page_number, kind)}"
            num_pages, within = WALKS.get(kind, (1, False))
            if num_pages == 1:
                yield Order(id, kind, (page,))
            elif walk := find_walk(graphs[within], page, num_pages - 1):
                yield Order(id, kind, (page, *(link.page for link in walk)), tuple(link.labels for link in walk))
