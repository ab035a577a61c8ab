"""Features of a question and a page, and the search that puts pages in the order of a model of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from math import log
from sys import intern
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from drag_ray.baselines.feature_model import FeatureModel
from drag_ray.baselines.question_words import choose_kind
from drag_ray.search.hybrid import fuse_rankings
from drag_ray.search.rerank import put_in_order
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


@dataclass(frozen=True)
class Candidates:
    """Candidates of a question: the best pages of all searches, and the rank and the score of each in every ranking, (rankings,
    pages) each; a page that a ranking lacks stands at its end."""

    hits: Hits
    ranks: Floats
    scores: Floats


class CandidateFinder:
    """Finds the pages that are put in order.

    Args:
        searchers: of words, of vectors or both.
        depth: pages.
    """

    def __init__(self, searchers: "Sequence[PageSearcher]", depth: int) -> None:
        self._searchers = searchers
        self._depth = depth

    def find(self, question: str, at_least: int = 0) -> Candidates:
        """The pages for a question, more where `at_least` says so. Errors are those of the searchers."""
        depth = max(self._depth, at_least)
        rankings = [searcher.search(question, depth) for searcher in self._searchers]
        hits = rankings[0] if len(rankings) == 1 else fuse_rankings(rankings)[:depth]
        ranks = np.full((len(rankings), len(hits)), depth + 1.0)
        scores = np.zeros((len(rankings), len(hits)))
        for row, ranking in enumerate(rankings):
            found = {hit.page: hit for hit in ranking}
            best = max((hit.score for hit in ranking), default=0.0) or 1.0
            for column, hit in enumerate(hits):
                if own := found.get(hit.page):
                    ranks[row, column], scores[row, column] = own.rank, own.score / best
        return Candidates(Hits(hits, any(ranking.is_partial for ranking in rankings)), ranks, scores)


class PageTerms:
    """The terms of pages, each analysed once.

    Args:
        searcher: the index.
    """

    def __init__(self, searcher: "Searcher") -> None:
        self._searcher = searcher
        self.analyze = searcher.analyze
        # Interned, each term is in memory once, and not once for every page that has it.
        self.read = lru_cache(_NUM_KEPT)(lambda page: tuple(map(intern, searcher.analyze(searcher.text(page)))))
        self._doc_freq = cache(searcher.doc_freq)

    def weigh(self, term: str) -> float:
        """The rarity of a term: the logarithm of one over its share of the pages."""
        return log((self._searcher.num_pages + 1) / (self._doc_freq(term) + 0.5))


def compute_features(question: str, found: Candidates, terms: PageTerms, kind_terms: Sequence[Mapping[str, float]]) -> Floats:
    """The features of each page with the question. Shape (pages, features).

    They are the logarithm of its rank and its score in each ranking; of the weight of the question's terms the share that the
    page has, that its beginning has, and that stands in pairs as in the question; the logarithm of its length; its place in
    its file; and for each of `kind_terms` the sum of the weights of those that it has.
    """
    asked = terms.analyze(question)
    weights = {term: terms.weigh(term) for term in asked}
    pairs = {pair: weights[pair[0]] + weights[pair[1]] for pair in pairwise(asked)}
    rows: list[list[float]] = []
    for hit in found.hits:
        page = terms.read(hit.page)
        own = set(page)
        rows.append(
            [
                _share(weights, own),
                _share(weights, set(page[:_TITLE_TERMS])),
                _share(pairs, set(pairwise(page))),
                log(1 + len(page)),
                log(hit.page_number),
                *(sum(weight for term, weight in of_kind.items() if term in own) for of_kind in kind_terms),
            ]
        )
    of_pages = np.array(rows).reshape(len(rows), -1)
    return np.hstack([np.log(found.ranks).T, found.scores.T, of_pages])


def _share(weights: Mapping[T, float], had: set[T]) -> float:
    total = sum(weights.values())
    return sum(weight for item, weight in weights.items() if item in had) / total if total > 0 else 0.0


def choose_kind_terms(model: FeatureModel, question: str) -> list[Mapping[str, float]]:
    """The terms of the kind of a question, and those of all kinds."""
    kinds = [kind for kind in model.kinds if kind != ANY_KIND]
    kind = choose_kind(model.words.pick(question), kinds)
    return [model.kinds[kind] if kind else {}, model.kinds.get(ANY_KIND, {})]


class FeatureSearcher:
    """Searches for a question and puts what is found in the order of a model; in its own order where nothing was learned.

    Args:
        model: what was learned.
        finder: finds the pages.
        searcher: the index.
    """

    def __init__(self, model: FeatureModel, finder: CandidateFinder, searcher: "Searcher") -> None:
        self._model = model
        self._finder = finder
        self._searcher = searcher
        self._terms = PageTerms(searcher)

    def search(self, text: str, top_k: int) -> Hits:
        """The best pages for a question, of which `top_k` are put in order at least. Errors are those of the searchers."""
        found = self._finder.find(text, top_k)
        if not found.hits or not self._model.weights:
            return Hits(found.hits[:top_k], found.hits.is_partial)
        values = compute_features(text, found, self._terms, choose_kind_terms(self._model, text))
        scores = standardise(values, self._model) @ np.array(self._model.weights)
        return put_in_order(found.hits, dict(zip([hit.page for hit in found.hits], scores.tolist(), strict=True)), top_k)

    def page(self, hit: Hit) -> Page:
        """The page of a hit. Errors are those of `Searcher.page`."""
        return self._searcher.page(hit)


def standardise(values: Floats, model: FeatureModel) -> Floats:
    """Features with the mean and the deviation of the training pages taken off."""
    return (values - np.array(model.means)) / np.array(model.deviations)


def index_of(hits: Iterable[Hit], pages: Sequence[Evidence]) -> NDArray[np.bool_]:
    """True for the hits that are among some pages. Shape (hits,)."""
    wanted = set(pages)
    return np.array([hit.page in wanted for hit in hits], dtype=bool)
