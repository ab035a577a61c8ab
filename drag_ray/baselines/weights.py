"""Queries of weighted terms, written as text so that a trajectory shows just what was searched: `kidney^0.5 stone^0.25`; and
words with weights, as a policy writes them: `therapy^2 surgery`; and terms of an index back to words, for a stem is none."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from drag_ray.errors import SearchIndexError
from drag_ray.search.normal_form import normalise
from drag_ray.search.weighted_words import write_weight
from drag_ray.types import Hit, Hits, Page

if TYPE_CHECKING:
    from drag_ray.search.searcher import Searcher


_MARK = "^"
_PART = re.compile(r"(?P<term>.+)\^(?P<weight>\d+(\.\d+)?(e[+-]?\d+)?)")


def write_weights(weights: Mapping[str, float]) -> str:
    """Terms with their weights, the heaviest first, equal ones in the order of the alphabet."""
    ordered = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
    return " ".join(f"{term}{_MARK}{weight:.6g}" for term, weight in ordered)


def expand_terms(question_terms: Iterable[str], question_weight: float, added: Mapping[str, float]) -> dict[str, float]:
    """Added terms with their weights and the terms of a question, of which each weighs `question_weight` wherever it occurs."""
    weights = dict(added)
    for term, count in Counter(question_terms).items():
        weights[term] = weights.get(term, 0.0) + question_weight * count
    return weights


def read_weights(query: str) -> dict[str, float]:
    """The terms and weights of a query that `write_weights` wrote. Raises SearchIndexError: a part of the query is not
    `term^weight`."""
    weights = {}
    for part in query.split():
        found = _PART.fullmatch(part)
        if found is None:
            raise SearchIndexError(f"query part {part!r}: expected term{_MARK}weight, for example stone{_MARK}0.25.")
        weights[found["term"]] = float(found["weight"])
    return weights


class WeightedSearcher:
    """Searches the terms of a weighted query as they stand, without analysing them again: a stem is not stemmed twice."""

    def __init__(self, searcher: "Searcher") -> None:
        self._searcher = searcher

    def search(self, text: str, top_k: int) -> Hits:
        return self._searcher.search_terms(read_weights(text), top_k)

    def page(self, hit: Hit) -> Page:
        return self._searcher.page(hit)


def vary_words(weights: Mapping[str, int], random_numbers: random.Random) -> dict[str, int]:
    """The words with their weights, of which each is left out by a chance of an eighth and counts 1 more by another."""
    varied: dict[str, int] = {}
    for word, weight in weights.items():
        chance = random_numbers.random()
        if chance >= 1 / 8:
            varied[word] = weight + (chance >= 7 / 8)
    return varied


def write_words(weights: Mapping[str, int]) -> str:
    """Words with their weights as an addition to a question: `therapy^2 surgery`."""
    return " ".join(write_weight(word, weight) for word, weight in weights.items())


_WORD = re.compile(r"[^\W_]+")


class WordForms:
    """The words that terms stand for in some texts."""

    def __init__(self, analyze: Callable[[str], list[str]]) -> None:
        self._analyze = analyze
        self._terms: dict[str, str] = {}
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, text: str) -> set[str]:
        """Take in the words of a text; returns the terms of those that are a term each."""
        terms: set[str] = set()
        for word, count in Counter(_WORD.findall(normalise(text).lower())).items():
            term = self._to_term(word)
            if term:
                self._counts[term][word] += count
                terms.add(term)
        return terms

    def write(self, term: str) -> str:
        """The commonest word for a term, of equals the first in the alphabet; the term itself if no text had a word for it."""
        counts = self._counts.get(term)
        return min(counts, key=lambda word: (-counts[word], word)) if counts else term

    def _to_term(self, word: str) -> str:
        if word not in self._terms:
            terms = self._analyze(word)
            self._terms[word] = terms[0] if len(terms) == 1 else ""
        return self._terms[word]
