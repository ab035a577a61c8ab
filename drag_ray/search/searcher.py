"""Search a page index. A searcher is cheap to open, safe to share between threads, and holds no page text in its own memory."""

import math
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from pathlib import Path

import numpy as np

from drag_ray.errors import SearchIndexError
from drag_ray.search.config import ColumnType, Operator, Syntax
from drag_ray.search.index import PAGES_NAME, REBUILD, guard
from drag_ray.search.metadata import Filter, FilterError, read_metadata
from drag_ray.search.page_table import PageTable
from drag_ray.search.query import clean, read_additions
from drag_ray.search.ranker import Ranker, Ranking
from drag_ray.search.snippet import Snippet, choose_window, match_terms
from drag_ray.types import Evidence, Hit, Hits, Page


class Searcher:
    """A page index that is open for search.

    Args:
        index_dir: what `build_index` wrote.
        operator: how the words of a query combine; the index's own by default.
        syntax: what the operators in a query mean; the index's own by default.
        holder: is kept as long as the searcher, and those that are made of it.

    Attributes:
        metadata: what the user has said of the documents; None where nothing was.
        is_limited: it finds what some groups may see, and no more.

    Raises:
        SearchIndexError: there is no index, it is stale or damaged, or it does not fit this code.
    """

    @guard
    def __init__(
        self, index_dir: Path, operator: Operator | None = None, syntax: Syntax | None = None, holder: object = None
    ) -> None:
        self.index_dir = index_dir
        self._holder = holder
        self._ranker = Ranker(index_dir, operator, syntax)
        self.record = self._ranker.record
        self._pages = PageTable(index_dir / PAGES_NAME)
        self.num_pages = len(self._pages)
        if self.num_pages != self.record.num_pages:
            raise SearchIndexError(
                f"{index_dir}: {self.num_pages} pages in the page table, {self.record.num_pages} in its record. {REBUILD}"
            )

        self.metadata = read_metadata(index_dir)
        self.is_limited = False
        if self.metadata and self.metadata.files != self._pages.files:
            raise SearchIndexError(f"{index_dir}: its metadata are of other documents than its pages. {REBUILD}")
        self._shown: np.ndarray | None = None

    def narrow(self, conditions: Filter) -> "Searcher":
        """The same index for a filter (see `metadata`): no other page is found, named or read. Scores stay those of all pages.
        Raises FilterError: the index has no such column, or it is of another type; says which there are."""
        if self.metadata is None:
            raise FilterError("filter: the index has no metadata of documents. Build it with some: corpus.metadata.")
        return self._restrict(self.metadata.select(conditions, self.list_filters()))

    def list_filters(self) -> dict[str, ColumnType]:
        """The columns that a filter may ask of, with their types. Who finds what some groups may see
        is not told which others may."""
        columns = self.metadata.columns if self.metadata else {}
        hidden = self.metadata.access_column if self.metadata and self.is_limited else ""
        return {name: kind for name, kind in columns.items() if name != hidden}

    def limit_to(self, groups: Collection[str]) -> "Searcher":
        """The same index for who belongs to some groups: documents of others, or without a group, are not there. Raises
        SearchIndexError: the index does not say which group may see what."""
        if self.metadata is None or not self.metadata.access_column:
            raise SearchIndexError(f"{self.index_dir}: has no groups of documents. Build it with corpus.access_column.")
        limited = self._restrict(self.metadata.select_groups(groups))
        limited.is_limited = True
        return limited

    def _restrict(self, shown: np.ndarray) -> "Searcher":
        restricted = copy(self)
        restricted._shown = shown if self._shown is None else self._shown & shown
        restricted._ranker = self._ranker.restrict(shown)
        restricted._pages = self._pages.restrict(shown)
        return restricted

    @property
    def shown_rows(self) -> np.ndarray | None:
        """The pages that may be found: bool (pages,); None for all."""
        return None if self._shown is None else np.repeat(self._shown, self._pages.lengths)

    def analyze(self, text: str) -> list[str]:
        """The terms of a text in their order, repetitions included, as the index has them."""
        return self._ranker.analyzer.analyze(clean(text))

    def read_additions(self, text: str) -> dict[str, float]:
        """The terms of words that a policy wrote, each with its weight, which is 1 unless it is said as in `prognosis^2`."""
        return read_additions(text, self._ranker.analyzer)

    def doc_freq(self, term: str) -> int:
        """The number of pages that hold a term (one of `analyze`, not a word). Raises SearchIndexError: the index is damaged."""
        return self._ranker.doc_freq(term)

    def search(self, text: str, top_k: int, files: Collection[str] | None = None) -> Hits:
        """The `top_k` best pages for what a model or a user wrote, best first; equal scores in order of (file, page).

        Never raises on the text: text without a searchable word finds nothing. What costs more than `search.max_query_ms` is
        left out, which the hits say.

        Args:
            text: the query.
            top_k: pages to find at most.
            files: search these files alone; names that the index does not have find nothing.

        Raises:
            SearchIndexError: `top_k` is below 1.
        """
        check_top_k(top_k)
        return self.to_hits(self._ranker.rank(text, top_k, None if files is None else self._pages.row_ranges(files)))

    def search_terms(self, weights: Mapping[str, float], top_k: int) -> Hits:
        """The `top_k` best pages for terms (as `analyze` gives them) that weigh more or less in the score, joined by OR. Raises
        SearchIndexError: `top_k` is below 1."""
        check_top_k(top_k)
        return self.to_hits(self._ranker.rank_terms(weights, top_k))

    def search_expanded(self, question: str, addition: str, question_weight: float, top_k: int, words: str = "") -> Hits:
        """The `top_k` best pages for a question and what is added to it, whose scores add up.

        Args:
            question: words, of which each weighs `question_weight`.
            addition: words of weight 1, or of another one as in `prognosis^2`, where the syntax is `words`; otherwise a query.
                An empty one adds nothing.
            question_weight: how much a word of the question counts beside an added one.
            top_k: pages to find at most.
            words: those of the question that are searched; all by default.

        Raises:
            SearchIndexError: `top_k` is below 1.
        """
        check_top_k(top_k)
        return self.to_hits(self._ranker.rank_expanded(words or question, addition, question_weight, top_k))

    @guard
    def snippet(self, hit: Hit | Evidence, text: str, max_chars: int = 300) -> Snippet:
        """The window of the hit's page with most of what the query `text` asks for, rare terms before common ones. Raises
        SearchIndexError: the hit is of another index, or `max_chars` is below 1."""
        if max_chars < 1:
            raise SearchIndexError(f"max_chars {max_chars}: must be at least 1.")
        page_text = self.text(hit)
        tokens = self._ranker.analyzer.locate(page_text)
        terms = match_terms(self._ranker.parse(text), {token.term for token in tokens})
        matched = [token for token in tokens if token.term in terms]
        start, end = choose_window(page_text, matched, lambda term: math.log1p(self.num_pages / self.doc_freq(term)), max_chars)
        inside = tuple((token.start - start, token.end - start) for token in matched if start <= token.start and token.end <= end)
        return Snippet(hit.file, hit.page_number, page_text[start:end], start, inside)

    @guard
    def page(self, hit: Hit | Evidence) -> Page:
        """The page of a hit or an evidence page, with its text. Raises SearchIndexError: it is of another index."""
        return self._pages.page(self._row(hit))

    @guard
    def find_page(self, file: str, page_number: int) -> Page | None:
        """The page that somebody names, None if the index does not have it."""
        row = self._pages.row(file, page_number)
        return None if row is None else self._pages.page(row)

    def read_file(self, file: str) -> Iterator[Page]:
        """The pages of a file in order; none if the index does not have it."""
        return (self._pages.page(row) for row in self._pages.rows(file))

    @guard
    def text(self, hit: Hit | Evidence) -> str:
        """The text of such a page, for who needs no more of it. Raises SearchIndexError: it is of another index."""
        return self._pages.text(self._row(hit))

    def _row(self, hit: Hit | Evidence) -> int:
        row = self._pages.row(hit.file, hit.page_number)
        if row is None:
            raise SearchIndexError(f"{hit.file}, page {hit.page_number}: not in this index.")
        return row

    @guard
    def to_hits(self, ranking: Ranking) -> Hits:
        """The pages of a ranking by (score, row) of the page table, best first."""
        hits = (Hit(*self._pages.key(row), rank, score) for rank, (score, row) in enumerate(ranking, start=1))
        return Hits(hits, ranking.is_partial)


def check_top_k(top_k: int) -> None:
    """SearchIndexError unless a search is to find one page at least."""
    if top_k < 1:
        raise SearchIndexError(f"top_k {top_k}: must be at least 1.")
