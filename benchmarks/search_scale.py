"""This project's search on many pages: the pages of a set again and again, each copy with a share of its words changed.

A changed word is drawn from all words of the set as often as they occur there, so words keep their frequencies and a query
matches as large a share of the pages as before. The vocabulary does not grow, which makes posting lists longer, and queries
slower, than those of as many real pages. Building and asking run in processes of their own, so that each has its own memory.
"""

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.types import Page

CHANGED_SHARE = 0.2
_TOP_K = 3


def measure_scale(pages: Sequence[Page], questions: Sequence[str], num_pages: int, scratch_dir: Path | None) -> dict[str, Any]:
    """Build time, size, memory and latency on `num_pages` pages. Needs about 5 kB of disk a page."""
    with tempfile.TemporaryDirectory(dir=scratch_dir) as folder:
        scratch = Path(folder)
        write_copies(pages, num_pages, scratch / "pages.parquet")
        built = _run_apart(_build, scratch)
        print("built", built, flush=True)
        asked = _run_apart(_ask, scratch, questions)
    return {"pages": num_pages, "changed_share": CHANGED_SHARE, "build": built, "search": asked}


def write_copies(pages: Sequence[Page], num_pages: int, path: Path) -> None:
    """Write `num_pages` pages, a row group for each copy of the set; the first copy is unchanged."""
    table = schemas.to_table(pages, schemas.PAGES)
    with pq.ParquetWriter(path, table.schema) as writer:
        for copy in _copy_pages(table, num_pages):
            writer.write_table(copy)


def _copy_pages(table: pa.Table, num_pages: int) -> Iterator[pa.Table]:
    generator = np.random.default_rng(0)
    words = pc.call_function("utf8_split_whitespace", [table["text"].combine_chunks()])
    encoded = words.flatten().dictionary_encode()
    word_ids = encoded.indices.to_numpy()
    for number, start in enumerate(range(0, num_pages, table.num_rows)):
        changed_ids = word_ids.copy()
        if number:
            is_changed = generator.random(len(word_ids)) < CHANGED_SHARE
            changed_ids[is_changed] = generator.choice(word_ids, size=int(is_changed.sum()))
        changed = pa.ListArray.from_arrays(words.offsets, encoded.dictionary.take(pa.array(changed_ids)))
        texts = pc.call_function("binary_join", [changed, " "])
        files = pc.call_function("binary_join_element_wise", [table["file"].combine_chunks(), f"copy{number}", "~"])
        copy = table.set_column(table.schema.get_field_index("text"), "text", texts)
        copy = copy.set_column(table.schema.get_field_index("file"), "file", files)
        yield copy.slice(0, num_pages - start).cast(table.schema)


def _run_apart(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def _build(scratch: Path) -> dict[str, Any]:
    started = time.perf_counter()
    build_index(scratch / "pages.parquet", scratch / "search_index", SearchConfig())
    wall_s = time.perf_counter() - started
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    files = [path for path in (scratch / "search_index").rglob("*") if path.is_file()]
    return {
        "wall_s": round(wall_s, 1),
        "cpu_s": round(own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime, 1),
        "peak_memory_mb": round(own.ru_maxrss / 1024),
        "peak_memory_of_a_child_mb": round(children.ru_maxrss / 1024),
        "index_mb": round(sum(path.stat().st_size for path in files) / 1e6, 1),
    }


def _ask(scratch: Path, questions: Sequence[str]) -> dict[str, Any]:
    started = time.perf_counter()
    searcher = Searcher(scratch / "search_index")
    open_s = time.perf_counter() - started
    memory = {"memory_after_open_mb": _read_private_memory_mb()}
    for question in questions:  # brings the index into the page cache
        _time_query(searcher, question)
    latencies_ms = [_time_query(searcher, question) for question in questions]
    percentiles = quantiles(latencies_ms, n=100, method="inclusive")
    return {
        "queries": len(questions),
        "open_s": round(open_s, 3),
        **memory,
        "memory_after_queries_mb": _read_private_memory_mb(),
        "p50_ms": round(percentiles[49], 3),
        "p99_ms": round(percentiles[98], 3),
    }


def _time_query(searcher: Searcher, question: str) -> float:
    """Milliseconds of one query with the texts of its pages."""
    started = time.perf_counter()
    for hit in searcher.search(question, _TOP_K):
        searcher.text(hit)
    return 1000 * (time.perf_counter() - started)


def _read_private_memory_mb() -> int:
    """Memory of this process without the files that it maps."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return round(int(line.split()[1]) / 1024)
