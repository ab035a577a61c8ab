"""The pages of a rollout in the order in which they are met, by which policies are compared at equal numbers of pages."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from drag_ray.types import Evidence, Hit


@dataclass(frozen=True, slots=True)
class PageSequence:
    """Distinct pages: those that a rollout shows, search by search, then those further down its first ranking.

    So a rollout of one search has its ranking for a sequence. `shown_by_turn` counts the pages shown up to each turn.
    """

    pages: tuple[Evidence, ...]
    shown_by_turn: tuple[int, ...]

    def find_rank(self, evidence: Collection[Evidence], depth: int) -> int | None:
        """The 1-based place of the first page of `evidence`, None beyond `depth`."""
        return next((place for place, page in enumerate(self.pages[:depth], start=1) if page in evidence), None)


def build_page_sequence(rankings: Sequence[Sequence[Hit]], top_k: int) -> PageSequence:
    """The sequence of a rollout with these rankings, one a turn, empty where the turn found nothing or did not search.

    Each shows its first `top_k` pages.
    """
    pages: dict[Evidence, None] = {}
    shown_by_turn = []
    for hits in rankings:
        pages |= _list_pages(hits[:top_k])
        shown_by_turn.append(len(pages))
    first = next((hits for hits in rankings if hits), ())
    return PageSequence(tuple(pages | _list_pages(first)), tuple(shown_by_turn))


def _list_pages(hits: Sequence[Hit]) -> dict[Evidence, None]:
    return dict.fromkeys(hit.page for hit in hits)
