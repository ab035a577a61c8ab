"""A ranking in a new order, by a model that reads the question together with each page.

Nogueira and Cho, Passage Re-ranking with BERT (2019).
"""

from collections.abc import Callable, Sequence

from drag_ray.search.passage import cut_passage
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hit

Score = Callable[[str, Sequence[str]], Sequence[float]]
"""From a question and texts to how well each of them answers it; more is better."""


class PageTexts:
    """The texts of pages that a model reads.

    Args:
        searcher: the index, which has the texts.
        page_chars: characters that it reads of a page (`rerank.page_chars`).
    """

    def __init__(self, searcher: Searcher, page_chars: int = 0) -> None:
        self._searcher = searcher
        self._page_chars = page_chars

    def read(self, question: str, pages: Sequence[Hit | Evidence]) -> list[str]:
        """Of each page what is read with a question.

        Raises:
            SearchIndexError: a page is of another index.
        """
        return [cut_passage(self._searcher, page, question, self._page_chars) for page in pages]


class PageRanker:
    """A model over the pages of an index. Safe to share between threads where the model is.

    Args:
        texts: of the pages.
        score: the model.
    """

    def __init__(self, texts: PageTexts, score: Score) -> None:
        self._texts = texts
        self._score = score

    def score(self, question: str, pages: Sequence[Hit | Evidence]) -> list[float]:
        """The scores of the pages as answers to the question.

        Raises:
            SearchIndexError: a page is of another index.
        """
        return list(self._score(question, self._texts.read(question, pages)))

    def rerank(self, question: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same pages, best first by their new scores; equal scores in the order that they had.

        Raises:
            SearchIndexError: a page is of another index.
        """
        return put_in_order(hits, self.score(question, hits)) if hits else []


class QuestionRanker:
    """A ranker for one question, which reads a page once, whichever ranking it stands in."""

    def __init__(self, ranker: PageRanker, question: str) -> None:
        self._ranker = ranker
        self._question = question
        self._known: dict[Evidence, float] = {}

    @property
    def num_read(self) -> int:
        """The pages that it has read."""
        return len(self._known)

    def rerank(self, hits: Sequence[Hit]) -> list[Hit]:
        """As `PageRanker.rerank` for the question."""
        unread = [hit for hit in hits if hit.page not in self._known]
        if unread:
            scores = self._ranker.score(self._question, unread)
            self._known.update((hit.page, score) for hit, score in zip(unread, scores, strict=True))
        return put_in_order(hits, [self._known[hit.page] for hit in hits])


def put_in_order(hits: Sequence[Hit], scores: Sequence[float]) -> list[Hit]:
    """The same pages, best first by these scores, one for each; equal ones in the order that they had."""
    ordered = sorted(zip(hits, scores, strict=True), key=lambda pair: -pair[1])
    return [Hit(hit.file, hit.page_number, rank, value) for rank, (hit, value) in enumerate(ordered, start=1)]
