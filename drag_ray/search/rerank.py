"""A ranking in a new order, by a model that reads the question together with each page.

Nogueira and Cho, Passage Re-ranking with BERT (2019).
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

from drag_ray.search.searcher import Searcher, check_top_k
from drag_ray.types import Hit, Hits, Page

Score = Callable[[str, Sequence[str]], Sequence[float]]
"""From a question and the texts of pages to how well each of them answers it; more is better."""


def rerank(question: str, hits: Sequence[Hit], searcher: Searcher, score: Score) -> list[Hit]:
    """The same pages, best first by their new scores; equal scores in the order that they had.

    Args:
        question: what somebody wants to know.
        hits: of the index.
        searcher: the index, which has the texts.
        score: reads them.
    """
    if not hits:
        return []
    return put_in_order(hits, score(question, [searcher.text(hit) for hit in hits]))


def put_in_order(hits: Sequence[Hit], scores: Sequence[float]) -> list[Hit]:
    """The same pages, best first by these scores, one for each; equal ones in the order that they had."""
    ordered = sorted(zip(hits, scores, strict=True), key=lambda pair: -pair[1])
    return [Hit(hit.file, hit.page_number, rank, value) for rank, (hit, value) in enumerate(ordered, start=1)]


def remember(score: Score) -> Score:
    """The same scores, with each page read once for a question, whichever ranking it stands in.

    It grows with what is read, by a digest and a score for each page: no text is kept.
    """
    known: dict[bytes, float] = {}

    def score_unread(question: str, texts: Sequence[str]) -> list[float]:
        unread = {digest: text for text in texts if (digest := _digest(question, text)) not in known}
        if unread:
            known.update(zip(unread, score(question, list(unread.values())), strict=True))
        return [known[_digest(question, text)] for text in texts]

    return score_unread


def _digest(question: str, text: str) -> bytes:
    return hashlib.blake2b(f"{len(question)} {question} {text}".encode(errors="surrogatepass"), digest_size=16).digest()


class Finder(Protocol):
    """What finds the pages that are ordered anew: by words, by vectors or by both."""

    def search(self, text: str, top_k: int) -> Hits:
        """The best pages for a query."""
        ...


class RerankingSearcher:
    """Orders the best pages of another search anew.

    Args:
        finder: that search, over the same index.
        searcher: the index.
        score: reads pages.
        depth: pages that are read, at least.
    """

    def __init__(self, finder: Finder, searcher: Searcher, score: Score, depth: int) -> None:
        self._finder = finder
        self._searcher = searcher
        self._score = score
        self._depth = depth

    def search(self, text: str, top_k: int) -> Hits:
        """The `top_k` best pages for a question, best first.

        Raises:
            SearchIndexError: `top_k` is below 1.
        """
        check_top_k(top_k)
        hits = self._finder.search(text, max(self._depth, top_k))
        return Hits(rerank(text, hits, self._searcher, self._score)[:top_k], hits.is_partial)

    def page(self, hit: Hit) -> Page:
        """The page of a hit. Errors are those of `Searcher.page`."""
        return self._searcher.page(hit)
