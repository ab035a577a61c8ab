"""The best pages of a bag of words without reading all postings of its common words.

Tantivy can skip postings itself (Block-Max WAND), but its Python binding collects hits in a way that switches this off.
MaxScore (Turtle and Flood 1995, Query evaluation: strategies and optimizations) can be had from outside, and it is exact:
a page that holds none of the rare, "essential" terms scores at most the sum of what the other terms can give. If the k-th
best page that holds an essential term scores more, then the k best pages are among those, and common terms need only be
looked up on them. What a term can give is its best score anywhere, found once and remembered.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tantivy import DocAddress, Occur, Query, Schema, Searcher

from drag_ray.search.shards import TEXT

TopHits = list[tuple[float, DocAddress]]

_MIN_POSTINGS = 2_000
"""Below this, reading everything takes less time than thinking about it."""
_OPTIONAL_SHARE = 0.5
"""Terms are left out of the first attempt while together they can give less than this share of what all terms can."""
_LOOKUP_COST = 3.0
"""Looking up a page in the postings of a term takes as long as reading this many postings in a row (measured)."""
_MARGIN = 1.0001
"""Scores are sums of 32-bit numbers in varying order; a bound must hold for all of them."""
_MAX_OPTIONAL = 24
"""Each optional term is a level of the query, and Tantivy works through levels by recursion."""
_MAX_REMEMBERED = 200_000


class _Term(NamedTuple):
    """A term of a query: its pages, the most that it can add to a score, and its weight."""

    num_pages: int
    bound: float
    text: str
    weight: float


class MaxScore:
    """Ranks weighted bags of words over one index. Safe to share between threads."""

    def __init__(self, searcher: Searcher, schema: Schema) -> None:
        self._searcher = searcher
        self._schema = schema
        self._known: dict[str, tuple[int, float]] = {}

    def search(self, weights: Mapping[str, float], limit: int) -> TopHits:
        """The `limit` best (score, address) for terms with their weights, which are above 0, joined by or."""
        terms = sorted(self._describe(text, weight) for text, weight in weights.items())
        total_bound = sum(term.bound for term in terms)
        num_essential, rest = 0, total_bound
        while terms[num_essential:] and (rest >= _OPTIONAL_SHARE * total_bound or num_essential == 0):
            rest -= terms[num_essential].bound
            num_essential += 1
        while _is_worth_it(terms, num_essential):
            hits = self._run(self._build_nested(terms, num_essential), limit)
            least = hits[-1][0] if len(hits) == limit else 0.0
            if rest * _MARGIN < least:
                return hits
            while rest * _MARGIN >= least and num_essential < len(terms):
                rest -= terms[num_essential].bound
                num_essential += 1
        return self._run(_join([self._build_term(term) for term in terms]), limit)

    def _describe(self, text: str, weight: float) -> _Term:
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            best = self._run(Query.term_query(self._schema, TEXT, text, index_option="freq"), 1)
            known = self._known[text] = (self._searcher.doc_freq(TEXT, text), best[0][0] if best else 0.0)
        num_pages, bound = known
        return _Term(num_pages, bound * weight, text, weight)

    def _run(self, query: Query, limit: int) -> TopHits:
        return self._searcher.search(query, limit=limit, count=False).hits

    def _build_term(self, term: _Term) -> Query:
        query = Query.term_query(self._schema, TEXT, term.text, index_option="freq")
        return query if term.weight == 1 else Query.boost_query(query, term.weight)

    def _build_nested(self, terms: list[_Term], num_essential: int) -> Query:
        """Each optional term is a level of its own: beside another one Tantivy would read both to their ends."""
        queries = [self._build_term(term) for term in terms]
        nested = _join(queries[:num_essential])
        for optional in queries[num_essential:]:
            nested = Query.boolean_query([(Occur.Must, nested), (Occur.Should, optional)])
        return nested


def _join(queries: list[Query]) -> Query:
    return queries[0] if len(queries) == 1 else Query.boolean_query([(Occur.Should, query) for query in queries])


def _is_worth_it(terms: list[_Term], num_essential: int) -> bool:
    num_postings = sum(term.num_pages for term in terms)
    num_optional = len(terms) - num_essential
    num_read = sum(term.num_pages for term in terms[:num_essential])
    lookups = num_read * (num_optional + 1) * _LOOKUP_COST
    return 0 < num_optional <= _MAX_OPTIONAL and num_postings > _MIN_POSTINGS and lookups < num_postings
