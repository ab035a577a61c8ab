"""The search environment: the pages that the policy sees, and the reward that it does not see."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from drag_ray.agent.scores import compute_rank_score
from drag_ray.errors import SearchIndexError
from drag_ray.types import Evidence, Hit, Hits, Page, Ranking


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The outcome of one search. `error` is not empty when the search itself failed, which is not an empty result."""

    ranking: Ranking = field(default_factory=Ranking)
    shown: tuple[tuple[Hit, Page], ...] = ()
    error: str = ""


def compute_evidence_rank(hits: tuple[Hit, ...], evidence: tuple[Evidence, ...]) -> int | None:
    """The best rank of any evidence page among the hits, None if there is none."""
    wanted = {(item.file, item.page_number) for item in evidence}
    return min((hit.rank for hit in hits if (hit.file, hit.page_number) in wanted), default=None)


def score_ranking(ranking: Ranking, evidence: tuple[Evidence, ...], top_k: int) -> Ranking:
    """The same pages with the rank of this evidence among them, and the score of that."""
    rank = compute_evidence_rank(ranking.hits, evidence)
    return replace(ranking, evidence_rank=rank, rank_score=compute_rank_score(rank, top_k))


def rank_hits(hits: Sequence[Hit], evidence: tuple[Evidence, ...], top_k: int) -> SearchResult:
    """A ranking that was not searched for: pages, the best first, whatever rank they had."""
    ranked = tuple(replace(hit, rank=rank) for rank, hit in enumerate(hits, start=1))
    return SearchResult(score_ranking(Ranking(ranked), evidence, top_k))


@dataclass(frozen=True, slots=True)
class ExpandedQuestion:
    """A question with what is added to it; its words, or those of `words` alone, weigh `weight` each beside added ones."""

    question: str
    addition: str
    weight: float
    words: str = ""


class PageSearcher(Protocol):
    """A searcher of queries: the index's `Searcher`, or one that reads queries in its own way."""

    def search(self, text: str, top_k: int) -> Hits:
        """The best pages for a query."""
        ...

    def page(self, hit: Hit) -> Page:
        """The page of a hit."""
        ...


class PageIndex(PageSearcher, Protocol):
    """A searcher of expanded questions too: the index's `Searcher`."""

    def search_expanded(self, question: str, addition: str, question_weight: float, top_k: int, words: str = "") -> Hits:
        """The best pages for a question and what is added to it; `words` are those of the question that are searched, where these
        are not all. Vectors are of the whole question."""
        ...


class SearchEnvironment:
    """Answers the searches of rollouts from one index. Safe for many rollouts at once in one event loop.

    Samples of a question often write the same query, so the latest searches are kept, those that still run among them: who
    asks the same is given the same ranking. A search that failed is not kept.

    Attributes:
        depth: ranks that are recorded.
        num_shared: searches that were answered by an earlier one.

    Args:
        index: answers questions, expanded ones and others.
        top_k: pages that the policy is shown.
        depth: ranks that are recorded.
        num_kept: distinct queries whose rankings and pages are kept.
        searcher: answers queries; the index, unless told otherwise.
    """

    def __init__(
        self, index: PageIndex, top_k: int, depth: int, num_kept: int = 1024, searcher: PageSearcher | None = None
    ) -> None:
        self._index = index
        self._searcher = searcher or index
        self._top_k = top_k
        self.depth = depth
        self._num_kept = num_kept
        self._found: dict[_Key, asyncio.Task[SearchResult]] = {}  # the latest last
        self.num_shared = 0

    async def search(self, query: str | ExpandedQuestion, evidence: tuple[Evidence, ...]) -> SearchResult:
        """Run a query in a worker thread, so that a slow one does not hold up the other rollouts."""
        key = (self._searcher, query)
        self.num_shared += key in self._found
        return await self._search(key, evidence)

    async def search_question(self, question: str | ExpandedQuestion, evidence: tuple[Evidence, ...]) -> SearchResult:
        """The pages that the index finds for a question to which nothing is added, which all of its rollouts are measured by."""
        return await self._search((self._index, question), evidence)

    async def _search(self, key: "_Key", evidence: tuple[Evidence, ...]) -> SearchResult:
        started = time.perf_counter()
        task = self._found.pop(key, None)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(self._find, *key))
            task.add_done_callback(partial(self._forget_failed, key))
        self._found[key] = task
        if len(self._found) > self._num_kept:
            del self._found[next(iter(self._found))]
        found = await asyncio.shield(task)  # one rollout that is ended must not end the search of the others
        timed = replace(found.ranking, search_s=time.perf_counter() - started)
        return replace(found, ranking=score_ranking(timed, evidence, self._top_k))

    async def read_pages(self, hits: Sequence[Hit]) -> list[Page]:
        """The pages of hits. Raises SearchIndexError where the index does not have one of them."""
        return await asyncio.to_thread(lambda: [self._index.page(hit) for hit in hits])

    def _find(self, searcher: PageSearcher, query: str | ExpandedQuestion) -> SearchResult:
        """The pages that a query finds, whoever asks; it is not ranked yet."""
        try:
            if isinstance(query, ExpandedQuestion):
                hits = self._index.search_expanded(query.question, query.addition, query.weight, self.depth, query.words)
            else:
                hits = searcher.search(query, self.depth)
            shown = tuple((hit, searcher.page(hit)) for hit in hits[: self._top_k])
            return SearchResult(Ranking(tuple(hits), is_partial=hits.is_partial), shown)
        except SearchIndexError as error:
            return SearchResult(error=str(error))

    def _forget_failed(self, key: "_Key", task: "asyncio.Task[SearchResult]") -> None:
        has_failed = task.cancelled() or task.exception() or task.result().error
        if has_failed and self._found.get(key) is task:
            del self._found[key]


_Key = tuple[PageSearcher, str | ExpandedQuestion]
"""Who is asked, and what."""
