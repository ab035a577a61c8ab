"""Features of a question and a page, and the search that puts pages in the order of a model of them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from math import log
from sys import intern
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from drag_ray.baselines.feature_model import FeatureModel
from drag_ray.baselines.question_words import choose_kind, pick_words
from drag_ray.search.page_reranker import PageRanker
from drag_ray.types import Evidence, Hit, Hits, Page

if TYPE_CHECKING:
    from drag_ray.agent.environment import PageSearcher
    from drag_ray.search.searcher import Searcher

T = TypeVar("T")
Floats = NDArray[np.float64]
ANY_KIND = frozenset[str]()
"""The kind that every question is of."""
_TITLE_TERMS = 12
"""Terms at the beginning of a page that are taken for its title."""
_NUM_KEPT = 50_000


class PageTerms:
    """The terms of pages, each analysed once."""

    def __init__(self, searcher: "Searcher") -> None:
        self._searcher = searcher
        self.analyze = searcher.analyze
        # Interned, each term is in memory once, and not once for every page that has it.
        self.read = lru_cache(_NUM_KEPT)(lambda page: tuple(map(intern, searcher.analyze(searcher.text(page)))))
        self._doc_freq = cache(searcher.doc_freq)

    def weigh(self, term: str) -> float:
        """The rarity of a term: the logarithm of one over its share of the pages."""
        return log((self._searcher.num_pages + 1) / (self._doc_freq(term) + 0.5))


def compute_features(question: str, hits: Sequence[Hit], terms: PageTerms, kind_terms: Sequence[Mapping[str, float]]) -> Floats:
    """The features of each page with the question. Shape (pages, features).

    They are the logarithm of its rank, and its score as a share of the best one; of the weight of the question's terms the share
    that the page has, that its beginning has, and that stands in pairs as in the question; the logarithm of its length; its place
    in its file; and for each of `kind_terms` the sum of the weights of those that it has.
    """
    asked = terms.analyze(question)
    weights = {term: terms.weigh(term) for term in asked}
    pairs = {pair: weights[pair[0]] + weights[pair[1]] for pair in pairwise(asked)}
    best = max((hit.score for hit in hits), default=0.0) or 1.0
    rows: list[list[float]] = []
    for hit in hits:
        page = terms.read(hit.page)
        own = set(page)
        rows.append(
            [
                log(hit.rank),
                hit.score / best,
                _share(weights, own),
                _share(weights, set(page[:_TITLE_TERMS])),
                _share(pairs, set(pairwise(page))),
                log(1 + len(page)),
                log(hit.page_number),
                *(sum(weight for term, weight in of_kind.items() if term in own) for of_kind in kind_terms),
            ]
        )
    return np.array(rows).reshape(len(rows), -1)


def _share(weights: Mapping[T, float], had: set[T]) -> float:
    total = sum(weights.values())
    return sum(weight for item, weight in weights.items() if item in had) / total if total > 0 else 0.0


def choose_kind_terms(model: FeatureModel, question: str) -> list[Mapping[str, float]]:
    """The terms of the kind of a question, and those of all kinds."""
    terms = {frozenset(kind.words): kind.terms for kind in model.kinds}
    kind = choose_kind(pick_words(question, model.words), [kind for kind in terms if kind != ANY_KIND])
    return [terms[kind] if kind else {}, terms.get(ANY_KIND, {})]


class FeatureScorer:
    """Scores pages by a model."""

    def __init__(self, model: FeatureModel, searcher: "Searcher") -> None:
        self._model = model
        self._terms = PageTerms(searcher)

    def __call__(self, question: str, hits: Hits) -> list[float]:
        """The score of each page of a ranking as an answer to the question."""
        if not hits:
            return []
        values = compute_features(question, hits, self._terms, choose_kind_terms(self._model, question))
        return (standardise(values, self._model) @ np.array(self._model.weights)).tolist()


class FeatureSearcher:
    """Searches for a question and puts what is found in the order of a model; in its own order where nothing was learned."""

    def __init__(self, model: FeatureModel, index: "PageSearcher", depth: int, searcher: "Searcher") -> None:
        self._index = index
        self._depth = depth
        self._ranker = PageRanker(searcher, features=FeatureScorer(model, searcher)) if model.weights else None

    def search(self, text: str, top_k: int) -> Hits:
        """The best pages for a question. Errors are those of the index."""
        hits = self._index.search(text, max(self._depth, top_k))
        return self._ranker.rerank(text, hits, top_k) if self._ranker else Hits(hits[:top_k], hits.is_partial)

    def page(self, hit: Hit) -> Page:
        """The page of a hit. Errors are those of `Searcher.page`."""
        return self._index.page(hit)


def standardise(values: Floats, model: FeatureModel) -> Floats:
    """Features with the mean and the deviation of the training pages taken off."""
    return (values - np.array(model.means)) / np.array(model.deviations)


def index_of(hits: Iterable[Hit], pages: Sequence[Evidence]) -> NDArray[np.bool_]:
    """True for the hits that are among some pages. Shape (hits,)."""
    wanted = set(pages)
    return np.array([hit.page in wanted for hit in hits], dtype=bool)
