"""Rank the pages of an index: from a query to scores and rows of the page table, which stays closed."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from tantivy import DocAddress, FieldType, Occur, Query

from drag_ray.errors import SearchIndexError
from drag_ray.search.analyzer import build_analyzer
from drag_ray.search.config import Operator, SearchConfig, Syntax
from drag_ray.search.index import REBUILD, TANTIVY_DIR_NAME, check_files, guard, read_record
from drag_ray.search.max_score import MaxScore, TopHits
from drag_ray.search.query import (
    HIT_S,
    MAX_TERMS,
    Budget,
    IndexReader,
    Vocabulary,
    build_query,
    clean,
    expand,
    read_additions,
    read_query,
    read_weights,
    read_words,
    weigh_terms,
)
from drag_ray.search.shards import DOCUMENT, ROW, TEXT, open_index
from drag_ray.search.syntax import Node
from drag_ray.types import Found

_OPTIONS = ("analyzer", "syntax", "operator", "max_query_ms")
"""What of an index's record is options."""
_TIE_GROWTH = 16
"""Where more pages than are wanted are equal, so many times as many are asked for, to put them into the order of their rows."""
_TIE_EPSILON = 2e-6
"""Scores closer than this share are equal: Tantivy sums a page's terms in 32 bits, in an order that varies with the page."""


class Ranking(Found[tuple[float, int]]):
    """(score, row) of the best pages of a query; equal scores in order of their rows, as far as its budget goes."""


class Ranker:
    """An index that is open for ranking. Safe to share between threads; every `top_k` is at least 1.

    Args:
        operator: how the words of a query combine; the index's own by default.
        syntax: what the operators in a query mean; the index's own by default.

    Raises:
        SearchIndexError: there is no index, it is stale or damaged, or it does not fit this code.
    """

    @guard
    def __init__(self, index_dir: Path, operator: Operator | None = None, syntax: Syntax | None = None) -> None:
        self.index_dir = index_dir
        self.record = read_record(index_dir)
        check_files(index_dir)  # before they are mapped: Arrow may crash over damaged files
        config = SearchConfig.model_validate({key: getattr(self.record, key) for key in _OPTIONS})
        self.syntax: Syntax = syntax or config.syntax
        self.operator: Operator = operator or config.operator
        self.analyzer = build_analyzer(self.record.analyzer)
        index = open_index(index_dir / TANTIVY_DIR_NAME, self.record.analyzer)
        self._schema = index.schema
        self._searcher = index.searcher()
        # Words have no patterns, so that whoever searches for words does not wait for this.
        counted = self._searcher.terms_with_prefix(TEXT, "", limit=MAX_TERMS) if self.syntax != "words" else []
        self._reader = IndexReader(self._schema, self._searcher, Vocabulary(counted))
        self._max_query_ms = config.max_query_ms
        self._is_merged = self._searcher.num_segments == 1  # then the index is in order of the rows
        self._max_score = MaxScore(self._searcher, self._schema)
        self._filters: list[tuple[Occur, Query]] = []
        self.num_pages = self._searcher.num_docs
        if self.num_pages != self.record.num_pages:
            counts = f"{self.num_pages} indexed pages, {self.record.num_pages} in its record"
            raise SearchIndexError(f"{index_dir}: {counts}. {REBUILD}")

    def restrict(self, shown: np.ndarray) -> "Ranker":
        """A ranker of the pages of these documents alone, of an index that has metadata; scores stay those of all pages.

        Args:
            shown: bool (documents,).
        """
        restricted = copy(self)
        if not shown.all():
            # Tantivy looks up each document that is named, so the smaller half is.
            occur, named = (Occur.Must, shown) if 2 * shown.sum() <= len(shown) else (Occur.MustNot, ~shown)
            matching = Query.term_set_query(self._schema, DOCUMENT, np.flatnonzero(named).tolist())
            restricted._filters = [*self._filters, (occur, Query.const_score_query(matching, 0.0))]
        return restricted

    def parse(self, text: str) -> Node | None:
        """The meaning of a query; None if nothing searchable is in it."""
        return read_query(text, self.analyzer, self.syntax, self.operator)

    @guard
    def doc_freq(self, term: str) -> int:
        """The number of pages that hold a term."""
        return self._searcher.doc_freq(TEXT, clean(term))

    def rank(self, text: str, top_k: int, rows: Sequence[range] | None = None) -> Ranking:
        """The `top_k` best pages for a query, among these rows if any are given."""
        return self._rank_node(self.parse(text), top_k, rows)

    def rank_terms(self, weights: Mapping[str, float], top_k: int) -> Ranking:
        """The `top_k` best pages for terms that weigh more or less in the score, joined by OR."""
        return self._rank_node(weigh_terms(weights), top_k)

    def rank_expanded(self, question: str, addition: str, question_weight: float, top_k: int) -> Ranking:
        """The `top_k` best pages for a question whose words weigh `question_weight` each, and what is added to it.

        The question is a bag of words whatever the index's syntax and operator. So is the addition where the syntax is `words`,
        and there each of its words may have a weight (see `read_additions`); otherwise it is a query of the syntax.
        """
        weights = {term: question_weight * count for term, count in read_words(question, self.analyzer).items()}
        is_bag = self.syntax == "words"
        added = weigh_terms(read_additions(addition, self.analyzer)) if is_bag else self.parse(addition)
        return self._rank_node(expand(weights, added), top_k)

    @guard
    def _rank_node(self, node: Node | None, top_k: int, rows: Sequence[range] | None = None) -> Ranking:
        budget = Budget(self._max_query_ms)
        filters = self._filters if rows is None else [*self._filters, (Occur.Must, self._build_filter(rows))]
        weights = None if filters else read_weights(node)
        if weights:
            return self._rank(partial(self._max_score.search, self._max_score.choose_affordable(weights, budget)), top_k, budget)
        query = build_query(node, self._reader, budget)
        if filters:
            query = Query.boolean_query([(Occur.Must, query), *filters])
        return self._rank(self._run(query), top_k, budget)

    def _run(self, query: Query) -> Callable[[int], TopHits]:
        return lambda limit: self._searcher.search(query, limit=limit, count=False).hits

    def _rank(self, search: Callable[[int], TopHits], top_k: int, budget: Budget) -> Ranking:
        cost_s = self._max_query_ms / 1_000 - budget.left_s
        limit = min(top_k + 1, self.num_pages)
        while True:
            hits = search(limit)
            if len(hits) <= top_k or limit == self.num_pages or not _is_tie(hits[top_k - 1][0], hits[-1][0]):
                break
            limit = min(limit * _TIE_GROWTH, self.num_pages)
            if cost_s + limit * HIT_S > budget.left_s:  # what is found is right, in the order of the index
                break
            budget.spend(cost_s + limit * HIT_S)
        if self._is_merged:
            ranking = [(score, address.doc) for score, address in hits]
        else:
            values = self._searcher.fast_field_values(ROW, [address for _, address in hits])
            ranking = [(score, row) for (score, _), row in zip(hits, values, strict=True) if isinstance(row, int)]
        return Ranking(_order_ties(ranking)[:top_k], budget.is_exceeded)

    def _build_filter(self, chosen: Sequence[range]) -> Query:
        """Matches these rows and adds nothing to the score."""
        ends = [row for rows in chosen for row in (rows.start, rows.stop - 1)]
        labels = self._searcher.fast_field_values(ROW, [DocAddress(0, row) for row in ends]) if self._is_merged else ends
        ranges = [
            Query.range_query(self._schema, ROW, FieldType.Integer, first, last)
            for first, last in zip(labels[::2], labels[1::2], strict=True)
        ]
        return Query.const_score_query(Query.boolean_query([(Occur.Should, query) for query in ranges]), 0.0)


def _is_tie(better: float, worse: float) -> bool:
    return better - worse <= _TIE_EPSILON * better


def _order_ties(ranking: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Pages of equal score get the same score and the order of their rows."""
    tied = [_is_tie(better, worse) for (better, _), (worse, _) in pairwise(ranking)]
    if not any(tied):
        return ranking
    ordered: list[tuple[float, int]] = []
    start = 0
    for end in range(1, len(ranking) + 1):
        if end == len(ranking) or not tied[end - 1]:
            ordered += [(ranking[start][0], row) for row in sorted(row for _, row in ranking[start:end])]
            start = end
    return ordered
