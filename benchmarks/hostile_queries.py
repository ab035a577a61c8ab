"""Time of hostile queries on many pages, beside the limit of a query (`search.max_query_ms`).

python benchmarks/hostile_queries.py [--pages 100000]

The pages are of random words, some common and most rare, so that the dictionary is as large as a collection of so many pages has
it. A query may take so much by an estimate; kept is the CPU time of all threads, the largest of some tries, and whether the
answer says that something was left out. The result is kept in `results/hostile_queries.json`.
"""

import argparse
import string
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from record import write_result

from drag_ray import schemas
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.types import Page

_WORDS_PER_PAGE = 100
_WORDS_PER_NEW = 20
"""of a collection: one word in so many is another one, as far as the dictionary goes"""
_MAX_WORDS = 500_000
_PAGES_AT_ONCE = 5_000
_TRIES = 3

QUERIES = {
    "patterns that match most words": " ".join(f"*{letter}*" for letter in string.ascii_lowercase[:16]),
    "patterns joined by and": " AND ".join(["*a*"] * 40),
    "patterns that are excluded": f"a* NOT ({' OR '.join(f'*{letter}*' for letter in string.ascii_lowercase)})",
    "stars and question marks": "*a?????????????*b?????????????*c????????????* " * 20,
}
"""The first is the one of 63 characters."""


def build_pages(folder: Path, num_pages: int) -> Path:
    """Index so many pages; returns the index folder."""
    random = np.random.default_rng(0)
    num_words = min(_MAX_WORDS, num_pages * _WORDS_PER_PAGE // _WORDS_PER_NEW)
    letters = random.integers(ord("a"), ord("z") + 1, size=(num_words, 8), dtype=np.uint8)
    words = letters.view("S8").ravel().astype(str).astype(object)
    path = folder / "pages.parquet"
    with pq.ParquetWriter(path, schemas.PAGES) as writer:
        for start in range(0, num_pages, _PAGES_AT_ONCE):
            writer.write_table(_draw_pages(random, words, range(start, min(start + _PAGES_AT_ONCE, num_pages))))
    build_index(path, folder / "index", SearchConfig(analyzer="plain", syntax="query"))
    return folder / "index"


def _draw_pages(random: np.random.Generator, words: np.ndarray, numbers: range) -> pa.Table:
    # The cube makes a few words common, as in a language.
    drawn = (len(words) * random.random((len(numbers), _WORDS_PER_PAGE)) ** 3).astype(int)
    texts = map(" ".join, words[drawn])
    pages = (Page(f"{number:07}.pdf", 1, 1, text) for number, text in zip(numbers, texts, strict=True))
    return schemas.to_table(pages, schemas.PAGES)


def measure_queries(index_dir: Path) -> dict[str, dict[str, Any]]:
    """CPU milliseconds of each query, and whether its answer says that something was left out."""
    searcher = Searcher(index_dir)
    searcher.search("a* aa", 10)  # reads the index for the first time
    return {name: _measure(searcher, query) for name, query in QUERIES.items()}


def _measure(searcher: Searcher, query: str) -> dict[str, Any]:
    def try_each() -> Iterator[float]:
        for _ in range(_TRIES):
            started = time.process_time()
            searcher.search(query, 10)
            yield 1_000 * (time.process_time() - started)

    return {"cpu_ms": round(max(try_each()), 1), "is_partial": searcher.search(query, 10).is_partial, "chars": len(query)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=100_000, help="how many")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        index_dir = build_pages(Path(folder), options.pages)
        build_s = round(time.monotonic() - started, 1)
        queries = measure_queries(index_dir)
    result = {"pages": options.pages, "max_query_ms": SearchConfig().max_query_ms, "build_s": build_s, "queries": queries}
    print(result)
    write_result("hostile_queries", result)


if __name__ == "__main__":
    main()
