"""Ask a page index. A searcher is cheap to open, safe to share between threads, and holds no page text in its own memory."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path

import tantivy
from tantivy import Occur, Query

from drag_ray.errors import SearchIndexError
from drag_ray.search.analyzer import build_analyzer
from drag_ray.search.config import Operator, SearchConfig, Syntax
from drag_ray.search.guard import guard
from drag_ray.search.index import PAGES_NAME, REBUILD, TANTIVY_DIR_NAME, check_files, read_record
from drag_ray.search.max_score import MaxScore, TopHits
from drag_ray.search.page_table import PageTable
from drag_ray.search.processes import IndexView, Ranked, SearchProcesses
from drag_ray.search.query import build_query, clean, read_query, read_weights, weigh_terms
from drag_ray.search.shards import ROW, TEXT, open_index
from drag_ray.search.snippet import Snippet, build_matcher, choose_window
from drag_ray.search.syntax import Node
from drag_ray.types import Hit, Page

_TIE_EPSILON = 2e-6
"""Scores closer than this share are equal: Tantivy sums a page's terms in 32 bits, in an order that varies with the page."""

_MIN_BATCH = 256
"""A batch of fewer queries takes less time than sharing it out."""


class Searcher:
    """A page index that is open for search.

    Args:
        index_dir: what `build_index` wrote.
        operator: how the words of a query combine; the index's own by default.
        syntax: what the marks in a query mean; the index's own by default.

    Raises:
        SearchIndexError: there is no index, it is stale or damaged, or it does not fit this code.
    """

    @guard
    def __init__(self, index_dir: Path, operator: Operator | None = None, syntax: Syntax | None = None) -> None:
        self.index_dir = index_dir
        self.record = read_record(index_dir)
        check_files(index_dir)  # before they are mapped: Arrow may crash over damaged files
        config = SearchConfig.model_validate({key: getattr(self.record, key) for key in ("analyzer", "syntax", "operator")})
        self._syntax: Syntax = syntax or config.syntax
        self._operator: Operator = operator or config.operator
        self._analyzer = build_analyzer(self.record.analyzer)
        index = open_index(index_dir / TANTIVY_DIR_NAME, self.record.analyzer)
        self._schema = index.schema
        self._searcher = index.searcher()
        self._is_merged = self._searcher.num_segments == 1  # then the index is in order of the rows
        self._max_score = MaxScore(self._searcher, self._schema)
        self._pages = PageTable(index_dir / PAGES_NAME)
        self.num_pages = len(self._pages)
        if not self._searcher.num_docs == self.num_pages == self.record.num_pages:
            raise SearchIndexError(
                f"{index_dir}: {self._searcher.num_docs} indexed pages, {self.num_pages} in the page table, "
                f"{self.record.num_pages} in its record. {REBUILD}"
            )

    def analyze(self, text: str) -> list[str]:
        """The terms of a text in their order, repetitions included, as the index cuts them."""
        return self._analyzer.analyze(clean(text))

    @guard
    def doc_freq(self, term: str) -> int:
        """The number of pages that hold a term (one of `analyze`, not a word)."""
        return self._searcher.doc_freq(TEXT, clean(term))

    def search(self, text: str, top_k: int, files: Collection[str] | None = None) -> list[Hit]:
        """The `top_k` best pages for what a model or a user wrote, best first; equal scores in order of (file, page).

        Never raises on the text: text without a searchable word finds nothing.

        Args:
            text: the query.
            top_k: pages to find at most.
            files: look only into these files; names that the index does not have find nothing.

        Raises:
            SearchIndexError: `top_k` is below 1.
        """
        return self._to_hits(self.rank(text, top_k, files))

    def rank(self, text: str, top_k: int, files: Collection[str] | None = None) -> Ranked:
        """What `search` finds, as scores and rows of the page table."""
        _check_top_k(top_k)
        return self._find(self._read(text), top_k, None if files is None else self._pages.row_ranges(files))

    def search_terms(self, weights: Mapping[str, float], top_k: int) -> list[Hit]:
        """The `top_k` best pages for terms (as `analyze` gives them) that weigh more or less in the score, joined by OR.

        Raises:
            SearchIndexError: `top_k` is below 1.
        """
        _check_top_k(top_k)
        return self._to_hits(self._find(weigh_terms(weights), top_k))

    def search_batch(self, texts: Sequence[str], top_k: int) -> list[list[Hit]]:
        """`search` for many texts, on all cores.

        The first batch takes about a second more, in which a process for each core starts; they stay while this object lives.

        Raises:
            SearchIndexError: `top_k` is below 1, the index has been built anew since it was opened, or a process died.
        """
        _check_top_k(top_k)
        if len(texts) < _MIN_BATCH:
            return [self.search(text, top_k) for text in texts]
        return [self._to_hits(ranked) for ranked in self._processes.rank(texts, top_k)]

    @cached_property
    def _processes(self) -> SearchProcesses:
        return SearchProcesses(IndexView(self.index_dir.resolve(), self._operator, self._syntax, self.record))

    @guard
    def more_like_this(self, hit: Hit, top_k: int) -> list[Hit]:
        """The `top_k` pages that share most with the page of a hit, by its terms of highest tf-idf; not the page itself.

        Raises:
            SearchIndexError: the hit is of another index, or `top_k` is below 1.
        """
        _check_top_k(top_k)
        row = self._row(hit)
        text = self._analyzer.prepare(self.text(hit))
        if not self._analyzer.analyze(text):
            return []
        similar = Query.more_like_this_document_fields_query(
            self._schema, {TEXT: [text]}, min_doc_frequency=2, min_term_frequency=1
        )
        others = [(Occur.Must, similar), (Occur.MustNot, self._build_filter([range(row, row + 1)]))]
        return self._to_hits(self._rank(self._run(Query.boolean_query(others)), top_k))

    @guard
    def snippet(self, hit: Hit, text: str, max_chars: int = 300) -> Snippet:
        """The window of the hit's page with most of what the query `text` asks for, rare terms before common ones.

        Raises:
            SearchIndexError: the hit is of another index, or `max_chars` is below 1.
        """
        if max_chars < 1:
            raise SearchIndexError(f"max_chars {max_chars}: must be at least 1.")
        page_text = self.text(hit)
        matches = build_matcher(self._read(text))
        matched = [token for token in self._analyzer.locate(page_text) if matches(token.term)]
        start, end = choose_window(page_text, matched, lambda term: math.log1p(self.num_pages / self.doc_freq(term)), max_chars)
        inside = tuple((token.start - start, token.end - start) for token in matched if start <= token.start and token.end <= end)
        return Snippet(hit.file, hit.page_number, page_text[start:end], start, inside)

    @guard
    def page(self, hit: Hit) -> Page:
        """The page of a hit, with its text.

        Raises:
            SearchIndexError: the hit is of another index.
        """
        return self._pages.page(self._row(hit))

    @guard
    def text(self, hit: Hit) -> str:
        """The text of a hit's page, for who needs no more of it.

        Raises:
            SearchIndexError: the hit is of another index.
        """
        return self._pages.text(self._row(hit))

    def _row(self, hit: Hit) -> int:
        row = self._pages.row(hit.file, hit.page_number)
        if row is None:
            raise SearchIndexError(f"{hit.file}, page {hit.page_number}: not in this index.")
        return row

    def _read(self, text: str) -> Node | None:
        return read_query(text, self._analyzer, self._syntax, self._operator)

    @guard
    def _find(self, node: Node | None, top_k: int, rows: Sequence[range] | None = None) -> Ranked:
        """The best pages for a tree, among these rows if there are any given."""
        weights = read_weights(node) if rows is None else None
        if weights:
            return self._rank(partial(self._max_score.search, weights), top_k)
        query = build_query(node, self._schema, self._searcher)
        if rows is not None:
            query = Query.boolean_query([(Occur.Must, query), (Occur.Must, self._build_filter(rows))])
        return self._rank(self._run(query), top_k)

    def _run(self, query: Query) -> Callable[[int], TopHits]:
        return lambda limit: self._searcher.search(query, limit=limit, count=False).hits

    def _rank(self, search: Callable[[int], TopHits], top_k: int) -> Ranked:
        """The best pages, equal scores in order of their rows."""
        limit = min(top_k + 1, self.num_pages)
        while True:
            hits = search(limit)
            if len(hits) <= top_k or limit == self.num_pages or not _is_tie(hits[top_k - 1][0], hits[-1][0]):
                break
            limit = min(limit * 4, self.num_pages)
        if self._is_merged:
            ranked = [(score, address.doc) for score, address in hits]
        else:
            rows = self._searcher.fast_field_values(ROW, [address for _, address in hits])
            ranked = [(score, row) for (score, _), row in zip(hits, rows, strict=True)]
        return _order_ties(ranked)[:top_k]  # type: ignore[arg-type]

    @guard
    def _to_hits(self, ranked: Ranked) -> list[Hit]:
        return [Hit(*self._pages.key(row), rank, score) for rank, (score, row) in enumerate(ranked, start=1)]

    def _build_filter(self, chosen: Sequence[range]) -> tantivy.Query:
        """Matches these rows and adds nothing to the score."""
        ranges = [Query.range_query(self._schema, ROW, tantivy.FieldType.Integer, rows.start, rows.stop - 1) for rows in chosen]
        return Query.const_score_query(Query.boolean_query([(Occur.Should, query) for query in ranges]), 0.0)


def _check_top_k(top_k: int) -> None:
    if top_k < 1:
        raise SearchIndexError(f"top_k {top_k}: must be at least 1.")


def _is_tie(better: float, worse: float) -> bool:
    return better - worse <= _TIE_EPSILON * better


def _order_ties(ranked: Ranked) -> Ranked:
    """Pages of equal score get the same score and the order of their rows."""
    tied = [_is_tie(better, worse) for (better, _), (worse, _) in pairwise(ranked)]
    if not any(tied):
        return ranked
    ordered: Ranked = []
    start = 0
    for place in range(1, len(ranked) + 1):
        if place == len(ranked) or not tied[place - 1]:
            ordered += [(ranked[start][0], row) for row in sorted(row for _, row in ranked[start:place])]
            start = place
    return ordered
