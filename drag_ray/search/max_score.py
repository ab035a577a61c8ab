"""The best pages of a bag of words without reading all postings of its common words.

Tantivy can skip postings itself (Block-Max WAND), but its Python binding collects hits in a way that switches this off.
MaxScore (Turtle and Flood 1995, Query evaluation: strategies and optimizations) can be had from outside, and it is exact:
a page that holds none of the rare, "essential" terms scores at most the sum of what the other terms can add. If the k-th
best page that holds an essential term scores more, then the k best pages are among those, and common terms need only be
looked up on them. What a term can add, its upper bound, is its best score on any page, found once and cached.
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from tantivy import DocAddress, Occur, Query, Schema, Searcher

from drag_ray.search.query import POSTING_S, Budget
from drag_ray.search.shards import TEXT

TopHits = list[tuple[float, DocAddress]]

_MIN_POSTINGS = 2_000
"""Below this, reading all postings takes less time than choosing what to skip."""
_OPTIONAL_SHARE = 0.6
"""Terms are left out of the first attempt while together they can add less than this share of what all terms can."""
_LOOKUP_COST = 3.0
"""Looking up a page in the postings of a term takes as long as reading this many postings in a row (measured)."""
_MARGIN = 1.0001
"""Scores are sums of 32-bit numbers in varying order; a bound must hold for all of them."""
_MAX_OPTIONAL = 24
"""Each optional term is a level of the query, and Tantivy works through levels by recursion."""
_MAX_CACHED = 100_000


class _Term(NamedTuple):
    """A term of a query: its document frequency, the upper bound of its score, and itself as a query of its own."""

    doc_freq: int
    bound: float
    text: str
    query: Query


class MaxScore:
    """Ranks weighted bags of words over one index. Safe to share between threads."""

    def __init__(self, searcher: Searcher, schema: Schema) -> None:
        self._searcher = searcher
        self._schema = schema
        self._cached: dict[str, _Term] = {}

    def choose_affordable(self, weights: Mapping[str, float], budget: Budget) -> Mapping[str, float]:
        """The terms that a budget allows to read, rare ones first."""
        doc_freqs = {text: self._count(text) for text in weights}
        if budget.spend(sum(doc_freqs.values()) * POSTING_S):
            return weights
        rare_first = sorted(weights, key=doc_freqs.__getitem__)
        affordable = itertools.takewhile(lambda text: budget.spend(doc_freqs[text] * POSTING_S), rare_first)
        return {text: weights[text] for text in affordable}

    def search(self, weights: Mapping[str, float], limit: int) -> TopHits:
        """The `limit` best (score, address) for terms with their weights, which are above 0, joined by or."""
        terms: list[_Term] = []
        for text, weight in weights.items():
            term = self._cached.get(text) or self._look_up(text)
            if weight != 1:
                term = term._replace(bound=term.bound * weight, query=Query.boost_query(term.query, weight))
            terms.append(term)
        terms.sort()
        if not terms:
            return []
        num_postings = sum([term.doc_freq for term in terms])
        hits = self._search_essential(terms, num_postings, limit) if num_postings > _MIN_POSTINGS else None
        return self._run(_join(terms), limit) if hits is None else hits

    def _count(self, text: str) -> int:
        term = self._cached.get(text)
        return self._searcher.doc_freq(TEXT, text) if term is None else term.doc_freq

    def _search_essential(self, terms: list[_Term], num_postings: int, limit: int) -> TopHits | None:
        """The best pages without reading the optional terms to their ends; None if it takes longer than reading all does."""
        total_bound = rest = sum([term.bound for term in terms])
        least = _OPTIONAL_SHARE * total_bound / _MARGIN
        num_read = num_essential = 0
        while True:
            while num_essential < len(terms) and (rest * _MARGIN >= least or num_essential == 0):
                rest -= terms[num_essential].bound
                num_read += terms[num_essential].doc_freq
                num_essential += 1
            num_optional = len(terms) - num_essential
            if not 0 < num_optional <= _MAX_OPTIONAL or num_read * (num_optional + 1) * _LOOKUP_COST >= num_postings:
                return None
            hits = self._run(_nest(terms, num_essential), limit)
            least = hits[-1][0] if len(hits) == limit else 0.0
            if rest * _MARGIN < least:
                return hits

    def _look_up(self, text: str) -> _Term:
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        query = Query.term_query(self._schema, TEXT, text, index_option="freq")
        best = self._run(query, 1)
        term = self._cached[text] = _Term(self._searcher.doc_freq(TEXT, text), best[0][0] if best else 0.0, text, query)
        return term

    def _run(self, query: Query, limit: int) -> TopHits:
        return self._searcher.search(query, limit=limit, count=False).hits


def _join(terms: list[_Term]) -> Query:
    return terms[0].query if len(terms) == 1 else Query.boolean_query([(Occur.Should, term.query) for term in terms])


def _nest(terms: list[_Term], num_essential: int) -> Query:
    """Each optional term is a level of its own: beside another one Tantivy would read both to their ends."""
    nested = _join(terms[:num_essential])
    for optional in terms[num_essential:]:
        nested = Query.boolean_query([(Occur.Must, nested), (Occur.Should, optional.query)])
    return nested
