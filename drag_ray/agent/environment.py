"""What a search leads to: the pages that the policy sees, and the reward that it does not see."""

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

from drag_ray.agent.scores import compute_rank_score
from drag_ray.errors import SearchIndexError
from drag_ray.types import Evidence, Hit, Page


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The outcome of one search. `error` is not empty when the search itself failed, which is not an empty result."""

    hits: tuple[Hit, ...] = ()
    shown: tuple[tuple[Hit, Page], ...] = ()
    evidence_rank: int | None = None
    rank_score: float = 0.0
    search_s: float = 0.0
    error: str = ""


def compute_evidence_rank(hits: tuple[Hit, ...], evidence: tuple[Evidence, ...]) -> int | None:
    """The best rank of any evidence page among the hits, None if there is none."""
    wanted = {(item.file, item.page_number) for item in evidence}
    return min((hit.rank for hit in hits if (hit.file, hit.page_number) in wanted), default=None)


class PageSearcher(Protocol):
    """What answers queries: the index's `Searcher`, or one that reads queries in its own way."""

    def search(self, text: str, top_k: int) -> list[Hit]:
        """The best pages for a query."""
        ...

    def page(self, hit: Hit) -> Page:
        """The page of a hit."""
        ...


class SearchEnvironment:
    """Answers the searches of rollouts from one index. Safe for many rollouts at once."""

    def __init__(self, searcher: PageSearcher, top_k: int, depth: int) -> None:
        self._searcher = searcher
        self._top_k = top_k
        self._depth = depth

    async def search(self, query: str, evidence: tuple[Evidence, ...]) -> SearchResult:
        """Run a query in a worker thread, so that a slow one does not hold up the other rollouts."""
        return await asyncio.to_thread(self._search, query, evidence)

    def _search(self, query: str, evidence: tuple[Evidence, ...]) -> SearchResult:
        started = time.perf_counter()
        try:
            hits = tuple(self._searcher.search(query, self._depth))
            shown = tuple((hit, self._searcher.page(hit)) for hit in hits[: self._top_k])
        except SearchIndexError as error:
            return SearchResult(search_s=time.perf_counter() - started, error=str(error))
        rank = compute_evidence_rank(hits, evidence)
        return SearchResult(hits, shown, rank, compute_rank_score(rank, self._top_k), time.perf_counter() - started)
