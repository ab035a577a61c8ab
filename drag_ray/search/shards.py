"""The Tantivy index of page texts, built in parts at once and merged.

Tantivy's own writer threads share documents out as they come, which makes the order of equal scores an accident of
timing. Here each shard is a fixed range of rows in an index of its own; their segments are then put into one index,
and Tantivy's merge policy, which joins eight or more segments of one size, makes one segment of them. The index is
sorted by row, so that in the merged segment a document's number is its row.
"""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import tantivy
from tqdm.auto import tqdm

from drag_ray.search.analyzer import build_analyzer
from drag_ray.storage.json_text import parse_json

TEXT, ROW, DOCUMENT = "text", "row", "document"
TOKENIZER_NAME = "drag_ray"
_WRITER_HEAP_BYTES = 256 * 1024 * 1024
_MERGE_HEAP_BYTES = 16 * 1024 * 1024
_BATCH_PAGES = 1_024
_SHARD_MIN_PAGES = 256
_NUM_SHARDS = 8
"""Parts that are indexed in parallel. Rankings do not depend on it; fewer than 8 would not be merged."""
_META, _MANAGED = "meta.json", ".managed.json"


def build_schema(has_documents: bool = False) -> tantivy.Schema:
    """The fields of a page: its text with term frequencies and positions, its row in the page table and, where documents have
    metadata, the place of its document among all."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field(TEXT, stored=False, tokenizer_name=TOKENIZER_NAME, index_option="position")
    builder.add_integer_field(ROW, stored=False, indexed=False, fast=True)
    if has_documents:
        builder.add_integer_field(DOCUMENT, stored=False, indexed=True)
    return builder.build()


def open_index(tantivy_dir: Path, analyzer_name: str) -> tantivy.Index:
    """Open an index and give it its analyzer, which Tantivy does not keep."""
    index = tantivy.Index.open(str(tantivy_dir))
    index.register_tokenizer(TOKENIZER_NAME, build_analyzer(analyzer_name).text_analyzer)
    return index


def build_tantivy(texts: pa.ChunkedArray, tantivy_dir: Path, analyzer_name: str, documents: Sequence[int] = ()) -> None:
    """Index `texts` (n strings, in the order of their rows) on all cores, with the places of their documents where there are any.

    A small collection is one shard: starting a writer costs more than a few hundred pages do.
    """
    num_pages = len(texts)
    num_shards = 1 if num_pages < _SHARD_MIN_PAGES * _NUM_SHARDS else _NUM_SHARDS
    bounds = [num_pages * number // num_shards for number in range(num_shards + 1)]
    shard_dirs = [tantivy_dir / f"shard-{number}" for number in range(num_shards)]
    with (
        tqdm(total=num_pages, desc="indexing", unit=" pages", mininterval=1) as progress,
        ThreadPoolExecutor(min(num_shards, len(os.sched_getaffinity(0)))) as pool,
    ):
        ranges = itertools.starmap(range, itertools.pairwise(bounds))
        build = partial(_build_shard, texts, documents, analyzer_name=analyzer_name, report=progress.update)
        list(pool.map(build, ranges, shard_dirs))
    _join_shards(shard_dirs, tantivy_dir)
    if num_shards > 1:
        _merge(tantivy_dir, analyzer_name)
    (tantivy_dir / _MANAGED).unlink()  # files that a writer may remove: there is no writer any more


def _build_shard(
    texts: pa.ChunkedArray,
    documents: Sequence[int],
    rows: range,
    shard_dir: Path,
    analyzer_name: str,
    report: Callable[[int], object],
) -> None:
    """Index the texts of these rows in `shard_dir`; `report` is told how many more are done."""
    shard_dir.mkdir(parents=True)
    schema, analyzer = build_schema(len(documents) > 0), build_analyzer(analyzer_name)
    index = tantivy.Index(schema, path=str(shard_dir), sort_by_field=ROW)
    index.register_tokenizer(TOKENIZER_NAME, analyzer.text_analyzer)
    writer = index.writer(heap_size=_WRITER_HEAP_BYTES, num_threads=1)
    for start in range(rows.start, rows.stop, _BATCH_PAGES):
        batch = texts.slice(start, min(_BATCH_PAGES, rows.stop - start)).to_pylist()
        for row, text in enumerate(batch, start):
            place = {DOCUMENT: int(documents[row])} if len(documents) else {}
            writer.add_document(tantivy.Document.from_dict({TEXT: analyzer.prepare(text), ROW: row, **place}, schema))
        report(len(batch))
    writer.commit()
    writer.wait_merging_threads()


def _join_shards(shard_dirs: list[Path], tantivy_dir: Path) -> None:
    """Make one index of several by listing all their segments, whose names are unique, in one meta file."""
    metas = [parse_json((shard_dir / _META).read_text()) for shard_dir in shard_dirs]
    managed = {name for shard_dir in shard_dirs for name in parse_json((shard_dir / _MANAGED).read_text())}
    for shard_dir, meta in zip(shard_dirs, metas, strict=True):
        for segment in meta["segments"]:
            for path in shard_dir.glob(f"{segment['segment_id'].replace('-', '')}.*"):
                path.rename(tantivy_dir / path.name)
        shutil.rmtree(shard_dir)
    segments = [segment for meta in metas for segment in meta["segments"]]
    (tantivy_dir / _MANAGED).write_text(json.dumps(sorted(managed)))
    (tantivy_dir / _META).write_text(json.dumps({**metas[0], "segments": segments}))


def _merge(tantivy_dir: Path, analyzer_name: str) -> None:
    """Let Tantivy's merge policy look at the segments; it does so after each commit."""
    writer = open_index(tantivy_dir, analyzer_name).writer(heap_size=_MERGE_HEAP_BYTES, num_threads=1)
    writer.commit()
    writer.wait_merging_threads()
