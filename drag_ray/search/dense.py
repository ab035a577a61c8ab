"""Dense search: the pages whose windows lie nearest to the query, by the vectors that an embedding model makes of both."""

from collections.abc import Callable, Sequence

import numpy as np

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
        return self._searcher.to_hits(self._vectors.rank(self._vector(text), top_k))

    def search_expanded(self, question: str, addition: str, question_weight: float, top_k: int, words: str = "") -> Hits:
        """The `top_k` pages nearest to a question together with what is added to it; a text has no weights within it.

        Raises:
            SearchIndexError: `top_k` is below 1.
        """
        return self.search(join_expanded(question, addition), top_k)

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
