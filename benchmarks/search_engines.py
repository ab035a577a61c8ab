"""Search engines behind one face: build an index of pages, find the file, page number and text of a question's best pages.

All of them get the same pages, remove Lucene's English stop words, stem, join the words by OR and rank by BM25 with k1 1.2 and
b 0.75. Each analyses text in its own way, as its users would have it, so that a query's time is the whole of a query.
"""

import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from drag_ray import schemas
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts
from drag_ray.types import Page

FoundPage = tuple[str, int, str]
"""(file, page_number, text)"""
SearchFn = Callable[[str, int], list[FoundPage]]
"""From a question and top_k to the best pages, best first. For one thread alone."""

_LUCENE = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was "
    "will with"
)
_STOP_WORDS = frozenset(_LUCENE.split())
_WORD = re.compile(r"\w+")


class Engine(Protocol):
    """One engine. `folder` is its own and holds nothing else."""

    name: str

    def prepare(self, pages: Sequence[Page], folder: Path) -> None:
        """Write the files that an index is built from; this is not timed."""
        ...

    def build(self, pages: Sequence[Page], folder: Path) -> None:
        """Write the index."""
        ...

    def open(self, folder: Path) -> SearchFn:
        """Open the index, once for each thread."""
        ...


class DragRay:
    """This project's index. Its input is the Parquet table of pages that the index stage writes."""

    name = "drag_ray"

    def prepare(self, pages: Sequence[Page], folder: Path) -> None:
        artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))

    def build(self, pages: Sequence[Page], folder: Path) -> None:
        build_index(folder / "pages.parquet", folder / "search_index", SearchConfig())
        (folder / "pages.parquet").unlink()

    def open(self, folder: Path) -> SearchFn:
        searcher = Searcher(folder / "search_index")

        def search(text: str, top_k: int) -> list[FoundPage]:
            return [(hit.file, hit.page_number, searcher.text(hit)) for hit in searcher.search(text, top_k)]

        return search


class Whoosh:
    """whoosh-reloaded, with the terms of its own stemming analyzer joined by OR."""

    name = "whoosh"

    def __init__(self) -> None:
        from whoosh.analysis import StemmingAnalyzer

        # Whoosh has no type hints, and what is inferred from its defaults takes its own stop words alone.
        options: dict[str, Any] = {"stoplist": _STOP_WORDS, "minsize": 1}
        self._analyzer = StemmingAnalyzer(**options)

    def prepare(self, pages: Sequence[Page], folder: Path) -> None:
        pass

    def build(self, pages: Sequence[Page], folder: Path) -> None:
        from whoosh import fields, index

        schema = fields.Schema(
            file=fields.STORED, page_number=fields.STORED, text=fields.TEXT(stored=True, analyzer=self._analyzer)
        )
        writer = index.create_in(folder, schema).writer(limitmb=512)
        for page in pages:
            writer.add_document(file=page.file, page_number=page.page_number, text=page.text)
        writer.commit()

    def open(self, folder: Path) -> SearchFn:
        from whoosh import index, scoring
        from whoosh.query.compound import Or
        from whoosh.query.terms import Term

        searcher = index.open_dir(folder).searcher(weighting=scoring.BM25F(B=0.75, K1=1.2))

        def search(text: str, top_k: int) -> list[FoundPage]:
            terms = dict.fromkeys(token.text for token in self._analyzer(text))
            hits = searcher.search(Or([Term("text", term) for term in terms]), limit=top_k)
            return [(hit["file"], hit["page_number"], hit["text"]) for hit in hits]

        return search


class Bm25s:
    """bm25s with numba and PyStemmer; the pages stay in memory beside it."""

    name = "bm25s_numba"

    def __init__(self) -> None:
        from Stemmer import Stemmer

        self._stem_words = Stemmer("english").stemWords

    def prepare(self, pages: Sequence[Page], folder: Path) -> None:
        pass

    def build(self, pages: Sequence[Page], folder: Path) -> None:
        import bm25s

        engine = bm25s.BM25(method="lucene", k1=1.2, b=0.75, backend="numba")
        engine.index([self._analyze(page.text) for page in pages], show_progress=False)
        rows = [{"file": page.file, "page_number": page.page_number, "text": page.text} for page in pages]
        engine.save(folder, corpus=rows, show_progress=False)

    def open(self, folder: Path) -> SearchFn:
        import bm25s

        engine = bm25s.BM25.load(folder, load_corpus=True)
        pages = [(row["file"], row["page_number"], row["text"]) for row in engine.corpus or ()]
        engine.corpus = None

        def search(text: str, top_k: int) -> list[FoundPage]:
            rows, scores = engine.retrieve([list(dict.fromkeys(self._analyze(text)))], k=top_k, show_progress=False)
            return [pages[row] for row, score in zip(rows[0].tolist(), scores[0].tolist(), strict=True) if score > 0]

        return search

    def _analyze(self, text: str) -> list[str]:
        return self._stem_words([word for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS])


class Sqlite:
    """SQLite's FTS5 with its Porter stemmer, which removes no stop words: they are left out of the query."""

    name = "sqlite_fts5"

    def prepare(self, pages: Sequence[Page], folder: Path) -> None:
        pass

    def build(self, pages: Sequence[Page], folder: Path) -> None:
        connection = sqlite3.connect(folder / "pages.db")
        connection.execute(
            "CREATE VIRTUAL TABLE pages USING fts5(file UNINDEXED, page_number UNINDEXED, text, tokenize='porter unicode61')"
        )
        rows = ((page.file, page.page_number, page.text) for page in pages)
        connection.executemany("INSERT INTO pages VALUES (?, ?, ?)", rows)
        connection.execute("INSERT INTO pages(pages) VALUES ('optimize')")
        connection.commit()
        connection.close()

    def open(self, folder: Path) -> SearchFn:
        connection = sqlite3.connect(folder / "pages.db", check_same_thread=False)

        def search(text: str, top_k: int) -> list[FoundPage]:
            words = dict.fromkeys(word for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS)
            statement = "SELECT file, page_number, text FROM pages WHERE pages MATCH ? ORDER BY rank LIMIT ?"
            return connection.execute(statement, (" OR ".join(f'"{word}"' for word in words), top_k)).fetchall()

        return search


ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (DragRay, Whoosh, Bm25s, Sqlite)}
