"""Dense search: the pages whose windows lie nearest to the query, by the vectors that an embedding model makes of both.

Hybrid search is by words and by vectors at once, fused by their ranks or by their scores.

Reciprocal rank fusion: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
Methods (SIGIR 2009). It looks at ranks alone, so that scores of different kinds need not be made comparable.

Convex combination of standardised scores: Bruch, Gai and Ingber, An Analysis of Fusion Functions for Hybrid Retrieval (TOIS
2023). It finds more, with a weight that suits the collection.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial

import numpy as np

from drag_ray.search.page_reranker import standardise
from drag_ray.search.searcher import Searcher, check_top_k
from drag_ray.search.vectors import PROBE, PageVectors
from drag_ray.search.weighted_words import strip_weights
from drag_ray.types import Hit, Hits, Page

Embed = Callable[[Sequence[str]], np.ndarray]
"""From n texts to their vectors, float32 (n, dimensions), of length 1 where the model's scores are cosines."""

_NUM_KEPT = 100_000


def join_expanded(question: str, addition: str) -> str:
    """The text that is embedded for a question and what is added to it, without the weights of words."""
    return f"{question} {strip_weights(addition)}".strip()


class DenseSearcher:
    """Searches the vectors of an index. Safe to share between threads if `embed` is.

    Args:
        searcher: the index, which has the pages.
        vectors: of its pages.
        embed: makes vectors of queries, by the model that made those of the pages. Each text is embedded once.

    Raises:
        SearchIndexError: `embed` is of another model than the vectors.
    """

    def __init__(self, searcher: Searcher, vectors: PageVectors, embed: Embed) -> None:
        self._searcher = searcher
        self._vectors = vectors
        self._embed = embed
        self._embedded: dict[str, np.ndarray] = {}
        vectors.check_model(embed([PROBE])[0])

    def prepare(self, texts: Sequence[str]) -> None:
        """Embed queries that are going to be asked: many at once take less time than one by one."""
        new = list(dict.fromkeys(text for text in texts if text not in self._embedded))
        if new:
            self._embedded.update(zip(new, self._embed(new), strict=True))

    def search(self, text: str, top_k: int) -> Hits:
        """The `top_k` pages with the best window for a query, best first; equal scores in order of (file, page).

        Blank text finds nothing.

        Raises:
            SearchIndexError: `top_k` is below 1.
        """
        check_top_k(top_k)
        if not text.strip():
            return Hits()
        return self._searcher.to_hits(self._vectors.rank(self._vector(text), top_k, self._searcher.shown_rows))

    def search_expanded(self, question: str, addition: str, question_weight: float, top_k: int, words: str = "") -> Hits:
        """The `top_k` pages nearest to a question together with what is added to it; a text has no weights within it. Raises
        SearchIndexError: `top_k` is below 1."""
        return self.search(join_expanded(question, addition), top_k)

    def restrict(self, searcher: Searcher) -> "DenseSearcher":
        """The same vectors, for a searcher that finds some of the pages alone."""
        restricted = copy(self)
        restricted._searcher = searcher
        return restricted

    def page(self, hit: Hit) -> Page:
        """The page of a hit. Errors are those of `Searcher.page`."""
        return self._searcher.page(hit)

    def _vector(self, text: str) -> np.ndarray:
        vector = self._embedded.get(text)
        if vector is None:
            [vector] = self._embed([text])
            if len(self._embedded) < _NUM_KEPT:
                self._embedded[text] = vector
        return vector


_RRF_K = 60
"""The constant of the paper: the larger, the less the first ranks stand out."""
FUSED_DEPTH = 100
"""Best pages of each ranking that are fused, at least."""


def fuse_rankings(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """All pages of the rankings, best first; equal scores in order of (file, page).

    The score of a page is the sum of 1 / (`_RRF_K` + rank) over the rankings that have it.
    """
    scores: dict[tuple[str, int], float] = {}
    for ranking in rankings:
        for hit in ranking:
            page = (hit.file, hit.page_number)
            scores[page] = scores.get(page, 0.0) + 1 / (_RRF_K + hit.rank)
    return _order(scores)


def fuse_scores(words: Sequence[Hit], dense: Sequence[Hit], dense_weight: float, depth: int) -> list[Hit]:
    """All pages that words and vectors find, best first; equal scores in order of (file, page).

    The score of a page is the mean of its two, each standardised over its ranking and counted from the lowest there, which is
    that of a page it lacks.

    Args:
        words: with scores above 0.
        dense: the nearest pages.
        dense_weight: of the scores of vectors, of 1.
        depth: pages that were wanted of each ranking: where words find fewer, all others have a score of 0.
    """
    scores: dict[tuple[str, int], float] = {}
    unfound = [0.0] if len(words) < depth else []
    for ranking, others, weight in ((words, unfound, 1 - dense_weight), (dense, [], dense_weight)):
        values = standardise([*(hit.score for hit in ranking), *others])
        lowest = min(values, default=0.0)
        for hit, value in zip(ranking, values, strict=False):
            page = (hit.file, hit.page_number)
            scores[page] = scores.get(page, 0.0) + weight * (value - lowest)
    return _order(scores)


def fuse(words: Sequence[Hit], dense: Sequence[Hit], dense_weight: float | None, depth: int) -> list[Hit]:
    """The fusion of what words and vectors find: by scores with a weight, by ranks without one."""
    return fuse_rankings([words, dense]) if dense_weight is None else fuse_scores(words, dense, dense_weight, depth)


def _order(scores: Mapping[tuple[str, int], float]) -> list[Hit]:
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [Hit(*page, rank, score) for rank, (page, score) in enumerate(ordered, start=1)]


class HybridSearcher:
    """The fusion of what BM25 and a dense searcher find for the same query.

    Args:
        searcher: of the words.
        dense: of the vectors, over the same index.
        depth: pages that each of them finds, at least.
        dense_weight: of the scores of vectors, for a fusion by scores; None fuses by ranks.
    """

    def __init__(
        self, searcher: Searcher, dense: DenseSearcher, depth: int = FUSED_DEPTH, dense_weight: float | None = None
    ) -> None:
        self._searcher = searcher
        self._dense = dense
        self._depth = depth
        self._dense_weight = dense_weight

    def search(self, text: str, top_k: int) -> Hits:
        """The `top_k` best pages for a query, best first, with the scores of the fusion. Raises SearchIndexError: `top_k` is
        below 1."""
        return self.search_beside(partial(self._searcher.search, text), text, top_k)

    def search_expanded(self, question: str, addition: str, question_weight: float, top_k: int, words: str = "") -> Hits:
        """The `top_k` best pages for a question and what is added to it, each searcher in its own way. Raises SearchIndexError:
        `top_k` is below 1."""
        check_top_k(top_k)
        asked = (question, addition, question_weight, max(self._depth, top_k))
        return self._fuse(self._searcher.search_expanded(*asked, words), self._dense.search_expanded(*asked), top_k)

    def search_beside(self, find: Callable[[int], Hits], text: str, top_k: int) -> Hits:
        """The `top_k` best pages of another search by words, which is given how many pages are wanted, and of the vectors for a
        text. Raises SearchIndexError: `top_k` is below 1."""
        check_top_k(top_k)
        depth = max(self._depth, top_k)
        return self._fuse(find(depth), self._dense.search(text, depth), top_k)

    def weigh(self, dense_weight: float | None) -> "HybridSearcher":
        """The same with another weight of the vectors."""
        return HybridSearcher(self._searcher, self._dense, self._depth, dense_weight)

    def restrict(self, searcher: Searcher) -> "HybridSearcher":
        """The same for a searcher that finds some of the pages alone."""
        return HybridSearcher(searcher, self._dense.restrict(searcher), self._depth, self._dense_weight)

    def _fuse(self, words: Hits, dense: Hits, top_k: int) -> Hits:
        fused = fuse(words, dense, self._dense_weight, max(self._depth, top_k))
        return Hits(fused[:top_k], words.is_partial or dense.is_partial)

    def page(self, hit: Hit) -> Page:
        """The page of a hit. Errors are those of `Searcher.page`."""
        return self._searcher.page(hit)
