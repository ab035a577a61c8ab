"""Ask a page index. A searcher is cheap to open, safe to share between threads, and holds no page text in its own memory."""

from pathlib import Path

import pyarrow as pa
import tantivy

from drag_ray import schemas
from drag_ray.errors import SearchIndexError
from drag_ray.search.analyzer import build_analyzer
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import PAGES_NAME, TANTIVY_DIR_NAME, TOKENIZER_NAME, read_record
from drag_ray.search.query import Operator, build_query, build_terms
from drag_ray.types import Hit, Page


class Searcher:
    """A page index that is open for search.

    Args:
        index_dir: what `build_index` wrote.
        operator: how the words of a query combine; the index's own by default.

    Raises:
        SearchIndexError: there is no index, or it does not fit this code.
    """

    def __init__(self, index_dir: Path, operator: Operator | None = None) -> None:
        self.record = read_record(index_dir)
        self._operator: Operator = operator or SearchConfig(operator=self.record.operator).operator  # type: ignore[arg-type]
        self._analyzer = build_analyzer(self.record.analyzer)
        try:
            index = tantivy.Index.open(str(index_dir / TANTIVY_DIR_NAME))
        except ValueError as error:
            raise SearchIndexError(f"{index_dir}: cannot be opened ({error}). Build it again: python jobs/index.py") from None
        index.register_tokenizer(TOKENIZER_NAME, self._analyzer)
        self._schema = index.schema
        self._searcher = index.searcher()
        self._pages = pa.ipc.open_file(pa.memory_map(str(index_dir / PAGES_NAME))).read_all()
        if self._searcher.num_docs != self._pages.num_rows:
            raise SearchIndexError(
                f"{index_dir}: {self._searcher.num_docs} indexed pages, {self._pages.num_rows} in the page table. "
                "Build it again: python jobs/index.py"
            )

    @property
    def num_pages(self) -> int:
        return self._pages.num_rows

    def search(self, text: str, top_k: int) -> list[Hit]:
        """The `top_k` best pages for what a model or a user wrote, best first; equal scores in order of (file, page).

        Never raises on the text: text without a searchable word finds nothing.
        """
        if top_k < 1:
            raise SearchIndexError(f"top_k {top_k}: must be at least 1.")
        ranked = self._rank(build_query(build_terms(text, self._analyzer), self._schema, self._operator), top_k)
        return [
            Hit(self._pages["file"][row].as_py(), self._pages["page_number"][row].as_py(), rank, score)
            for rank, (score, row) in enumerate(ranked, start=1)
        ]

    def page(self, hit: Hit) -> Page:
        """The page of a hit, with its text."""
        return self._page_at(self._row_of(hit.file, hit.page_number))

    def _rank(self, query: tantivy.Query, top_k: int) -> list[tuple[float, int]]:
        """(score, row) of the best pages. Tantivy orders ties by segment; the row restores (file, page) order."""
        limit = top_k
        while True:
            hits = self._searcher.search(query, limit=limit, count=False).hits
            tie_may_go_on = len(hits) == limit and self._searcher.num_segments > 1 and hits[-1][0] == hits[top_k - 1][0]
            if not tie_may_go_on or limit >= self.num_pages:
                break
            limit = min(limit * 4, self.num_pages)
        rows = self._searcher.fast_field_values("row", [address for _, address in hits])
        ranked = sorted((-score, int(row or 0)) for (score, _), row in zip(hits, rows, strict=True))
        return [(-negated, row) for negated, row in ranked[:top_k]]

    def _page_at(self, row: int) -> Page:
        return schemas.to_page({name: self._pages[name][row].as_py() for name in schemas.PAGES.names})

    def _row_of(self, file: str, page_number: int) -> int:
        if not hasattr(self, "_rows"):
            keys = zip(self._pages["file"].to_pylist(), self._pages["page_number"].to_pylist(), strict=True)
            self._rows = {key: row for row, key in enumerate(keys)}
        try:
            return self._rows[file, page_number]
        except KeyError:
            raise SearchIndexError(f"{file}, page {page_number}: not in this index.") from None
