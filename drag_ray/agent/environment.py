"""What a search leads to: the pages that the policy sees, and the reward that it does not see."""

import asyncio
import time
from dataclasses import dataclass
from functools import partial
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


@dataclass(frozen=True, slots=True)
class _Found:
    """What a query finds, whoever asks."""

    hits: tuple[Hit, ...] = ()
    shown: tuple[tuple[Hit, Page], ...] = ()
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
    """Answers the searches of rollouts from one index. Safe for many rollouts at once in one event loop.

    Samples of a question often write the same query, so the latest searches are kept, those that still run among them: who
    asks the same is given the same ranking. A search that failed is not kept.

    Attributes:
        num_shared: searches that were answered by an earlier one.

    Args:
        searcher: the index.
        top_k: pages that the policy is shown.
        depth: ranks that are recorded.
        num_kept: distinct queries whose rankings and pages are kept.
    """

    def __init__(self, searcher: PageSearcher, top_k: int, depth: int, num_kept: int = 1024) -> None:
        self._searcher = searcher
        self._top_k = top_k
        self._depth = depth
        self._num_kept = num_kept
        self._found: dict[str, asyncio.Task[_Found]] = {}  # the latest last
        self.num_shared = 0

    async def search(self, query: str, evidence: tuple[Evidence, ...]) -> SearchResult:
        """Run a query in a worker thread, so that a slow one does not hold up the other rollouts."""
        started = time.perf_counter()
        task = self._found.pop(query, None)
        if task:
            self.num_shared += 1
        else:
            task = asyncio.create_task(asyncio.to_thread(self._find, query))
            task.add_done_callback(partial(self._forget_failed, query))
        self._found[query] = task
        if len(self._found) > self._num_kept:
            del self._found[next(iter(self._found))]
        found = await asyncio.shield(task)  # one rollout that is ended must not end the search of the others
        rank = compute_evidence_rank(found.hits, evidence)
        score, search_s = compute_rank_score(rank, self._top_k), time.perf_counter() - started
        return SearchResult(found.hits, found.shown, rank, score, search_s, found.error)

    def _find(self, query: str) -> "_Found":
        try:
            hits = tuple(self._searcher.search(query, self._depth))
            return _Found(hits, tuple((hit, self._searcher.page(hit)) for hit in hits[: self._top_k]))
        except SearchIndexError as error:
            return _Found(error=str(error))

    def _forget_failed(self, query: str, task: "asyncio.Task[_Found]") -> None:
        has_failed = task.cancelled() or task.exception() or task.result().error
        if has_failed and self._found.get(query) is task:
            del self._found[query]
