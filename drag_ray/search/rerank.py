"""A ranking in a new order, by a model that reads the question together with each page.

Nogueira and Cho, Passage Re-ranking with BERT (2019).
"""

import hashlib
from collections.abc import Callable, Sequence

from drag_ray.search.searcher import Searcher
from drag_ray.types import Hit

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
