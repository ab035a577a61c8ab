"""Hybrid search: by words and by vectors at once, fused by their ranks.

Reciprocal rank fusion: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
Methods (SIGIR 2009). It looks at ranks alone, so that scores of different kinds need not be made comparable.
"""

from collections.abc import Callable, Sequence
from functools import partial

from drag_ray.search.dense import DenseSearcher
from drag_ray.search.searcher import Searcher, check_top_k
from drag_ray.types import Hit, Hits, Page

RRF_K = 60
"""The constant of the paper: the larger, the less the first ranks stand out."""


def fuse_rankings(rankings: Sequence[Sequence[Hit]], k: int = RRF_K) -> list[Hit]:
    """All pages of the rankings, best first; equal scores in order of (file, page).

    The score of a page is the sum of 1 / (k + rank) over the rankings that have it.

    Args:
        rankings: of one question, each with ranks from 1.
        k: the constant of the sum.
    """
    scores: dict[tuple[str, int], float] = {}
    for ranking in rankings:
        for hit in ranking:
            page = (hit.file, hit.page_number)
            scores[page] = scores.get(page, 0.0) + 1 / (k + hit.rank)
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [Hit(*page, rank, score) for rank, (page, score) in enumerate(ordered, start=1)]


class HybridSearcher:
    """The reciprocal rank fusion of what BM25 and a dense searcher find for the same query.

    Args:
        searcher: of the words.
        dense: of the vectors, over the same index.
        depth: pages that each of them finds, at least.
        k: the constant of the fusion.
    """

    def __init__(self, searcher: Searcher, dense: DenseSearcher, depth: int = 100, k: int = RRF_K) -> None:
        self._searcher = searcher
        self._dense = dense
        self._depth = depth
        self._k = k

    def search(self, text: str, top_k: int) -> Hits:
        """The `top_k` best pages for a query, best first, with the scores of the fusion.

        Raises:
            SearchIndexError: `top_k` is below 1.
        """
        return self.search_beside(partial(self._searcher.search, text), text, top_k)

    def search_expanded(self, question: str, addition: str, question_weight: float, top_k: int, words: str = "") -> Hits:
        """The `top_k` best pages for a question and what is added to it, each searcher in its own way.

        Raises:
            SearchIndexError: `top_k` is below 1.
        """
        check_top_k(top_k)
        asked = (question, addition, question_weight, max(self._depth, top_k))
        return self._fuse([self._searcher.search_expanded(*asked, words), self._dense.search_expanded(*asked)], top_k)

    def search_beside(self, find: Callable[[int], Hits], text: str, top_k: int) -> Hits:
        """The `top_k` best pages of another search by words, which is given how many pages are wanted, and of the vectors for a
        text.

        Raises:
            SearchIndexError: `top_k` is below 1.
        """
        check_top_k(top_k)
        depth = max(self._depth, top_k)
        return self._fuse([find(depth), self._dense.search(text, depth)], top_k)

    def _fuse(self, rankings: list[Hits], top_k: int) -> Hits:
        is_partial = any(ranking.is_partial for ranking in rankings)
        return Hits(fuse_rankings(rankings, self._k)[:top_k], is_partial)

    def page(self, hit: Hit) -> Page:
        """The page of a hit. Errors are those of `Searcher.page`."""
        return self._searcher.page(hit)
