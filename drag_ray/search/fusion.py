"""Several rankings of pages as one.

Reciprocal rank fusion: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
Methods (SIGIR 2009). It looks at ranks alone, so that scores of different kinds need not be made comparable.
"""

from collections.abc import Sequence

from drag_ray.types import Hit

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
