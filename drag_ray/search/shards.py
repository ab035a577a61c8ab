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

import numpy as np
import pyarrow as pa
import tantivy
from tqdm.auto import tqdm

from drag_ray.search.analyzer import build_analyzer
from drag_ray.storage import artifacts
from drag_ray.storage.json_text import parse_json

TEXT, ROW, DOCUMENT = "text", "row", "document"
TOKENIZER_NAME = "drag_ray"
_WRITER_HEAP_BYTES = 256 * 1024 * 1024
_MERGE_HEAP_BYTES = 16 * 1024 * 1024
_BATCH_PAGES = 1_024
_SHARD_MIN_PAGES = 256
NUM_SHARDS = 8
"""Parts that are indexed in parallel: as many segments of about one size as Tantivy's merge policy makes one of. Rankings do not
depend on it."""
_META, _MANAGED = "meta.json", ".managed.json"
_SEGMENT_SUFFIXES = {".fast", ".fieldnorm", ".idx", ".pos", ".store", ".term"}


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
    """Index the texts of a small collection, in the order of their rows, with the places of their documents if there are any."""
    build_shards(texts, np.arange(len(texts)), tantivy_dir, analyzer_name, 1, documents)
    (tantivy_dir / _MANAGED).unlink()


def count_shards(num_pages: int, num_shards: int = NUM_SHARDS) -> int:
    """The shards of so many pages. A small collection is one: starting a writer costs more than a few hundred pages do."""
    return 1 if num_pages < _SHARD_MIN_PAGES * num_shards else num_shards


def build_shards(
    texts: pa.ChunkedArray,
    labels: np.ndarray,
    tantivy_dir: Path,
    analyzer_name: str,
    num_shards: int,
    documents: Sequence[int] = (),
    kept_dir: Path | None = None,
) -> None:
    """Index `texts` on all cores, into one index of as many segments as shards.

    Args:
        labels: int64 (n,), ascending; they stand for the rows.
        documents: see `build_tantivy`.
        kept_dir: an index of segments that are put beside these.
    """
    num_pages = len(texts)
    num_shards = count_shards(num_pages, num_shards)
    bounds = [num_pages * number // num_shards for number in range(num_shards + 1)]
    shard_dirs = [tantivy_dir / f"shard-{number}" for number in range(num_shards)] if num_pages else []
    with (
        tqdm(total=num_pages, desc="indexing", unit=" pages", mininterval=1) as progress,
        ThreadPoolExecutor(min(num_shards, len(os.sched_getaffinity(0)))) as pool,
    ):
        ranges = itertools.starmap(range, itertools.pairwise(bounds))
        build = partial(_build_shard, texts, labels, documents, analyzer_name=analyzer_name, report=progress.update)
        list(pool.map(build, ranges, shard_dirs))
    if kept_dir:
        shard_dirs = [tantivy_dir / "shard-kept", *shard_dirs]
        link_folder(kept_dir, shard_dirs[0])
    _join_shards(shard_dirs, tantivy_dir)


def _build_shard(
    texts: pa.ChunkedArray,
    labels: np.ndarray,
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
            fields = {TEXT: analyzer.prepare(text), ROW: int(labels[row]), **place}
            writer.add_document(tantivy.Document.from_dict(fields, schema))
        report(len(batch))
    writer.commit()
    writer.wait_merging_threads()


def _join_shards(shard_dirs: list[Path], tantivy_dir: Path) -> None:
    """Make one index of several by listing all their segments, whose names are unique, in one meta file."""
    metas = [parse_json((shard_dir / _META).read_text()) for shard_dir in shard_dirs]
    for shard_dir, meta in zip(shard_dirs, metas, strict=True):
        for segment in meta["segments"]:
            for path in shard_dir.glob(f"{segment['segment_id'].replace('-', '')}.*"):
                path.rename(tantivy_dir / path.name)
        shutil.rmtree(shard_dir)
    segments = [segment for meta in metas for segment in meta["segments"]]
    names = [_META, *(path.name for path in tantivy_dir.iterdir() if path.suffix in _SEGMENT_SUFFIXES)]
    (tantivy_dir / _MANAGED).write_text(json.dumps(sorted(names)))  # not of the shards: a store keeps no hidden file of theirs
    (tantivy_dir / _META).write_text(json.dumps({**metas[0], "segments": segments}))


def count_pages(tantivy_dir: Path) -> int:
    """The pages in all segments of an index, none of which are marked as gone; nothing is opened."""
    return sum(segment["max_doc"] for segment in parse_json((tantivy_dir / _META).read_text())["segments"])


def link_folder(folder: Path, target: Path) -> None:
    """Have the files of an index in another folder as well, without a copy where both are on one file system."""
    target.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name in (_META, _MANAGED):  # the others never change
            shutil.copyfile(path, target / path.name)
        elif path.suffix in _SEGMENT_SUFFIXES:
            artifacts.link_file(path, target / path.name)


def merge_segments(tantivy_dir: Path, analyzer_name: str, gone: Sequence[tuple[int, int]] = ()) -> None:
    """Let Tantivy's merge policy look at the segments; it does so after each commit.

    Args:
        gone: the first and last labels of pages that are left out.
    """
    index = open_index(tantivy_dir, analyzer_name)
    writer = index.writer(heap_size=_MERGE_HEAP_BYTES, num_threads=1)
    for first, last in gone:
        writer.delete_documents_by_query(tantivy.Query.range_query(index.schema, ROW, tantivy.FieldType.Integer, first, last))
    writer.commit()
    writer.wait_merging_threads()
    (tantivy_dir / _MANAGED).unlink()  # files that a writer may remove: there is no writer any more
