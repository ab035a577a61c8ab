"""Orders: the questions to write, each of a page or of a walk over pages that are linked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from drag_ray.questions.config import WALKS, KindName
from drag_ray.questions.links import find_walks, link_pages
from drag_ray.questions.pages import PageText
from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.types import Evidence


@dataclass(frozen=True, slots=True)
class Order:
    """A question that is to be written: its id, its kind, the page or pages, and what links each to the one before it."""

    id: str
    kind: KindName
    pages: tuple[PageText, ...]
    links: tuple[tuple[str, ...], ...] = ()


def plan_orders(pages: Sequence[PageText], kinds: Sequence[KindName], limit: int, others: Sequence[PageText] = ()) -> list[Order]:
    """The questions to write: kinds in turn over the pages, then the next kind of each page, until there are `limit` of them; for
    a limit of 0 one of each page. A kind of several pages is left out of a page from which no walk leads over so many that are
    not asked about together already. The titles of documents may stand on `others`, which are not asked about."""
    return list(islice(_plan(pages, kinds, len(kinds) if limit else 1, others), limit or None))


def _plan(pages: Sequence[PageText], kinds: Sequence[KindName], turns: int, others: Sequence[PageText]) -> Iterator[Order]:
    graphs = {within: link_pages(pages, within, others) for within in {WALKS[kind][1] for kind in kinds if kind in WALKS}}
    ordered = set[tuple[KindName, frozenset[Evidence]]]()
    for turn in range(turns):
        for number, page in enumerate(pages):
            kind = kinds[(number + turn) % len(kinds)]
            id = f"written-{compute_fingerprint(page.place.file, page.place.page_number, kind)}"
            num_pages, within = WALKS.get(kind, (1, False))
            if num_pages == 1:
                yield Order(id, kind, (page,))
                continue
            for walk in find_walks(graphs[within], page, num_pages - 1):
                walked = (page, *(link.page for link in walk))
                asked = kind, frozenset(one.place for one in walked)
                if asked not in ordered:
                    ordered.add(asked)
                    yield Order(id, kind, walked, tuple(link.labels for link in walk))
                    break
