"""The documents that an earlier index has read: those that have not changed are not read again.

`documents.parquet` in the folder of the index has the rows of all parts (see `document_parts`) in the order of the documents,
each with its document, as a path from the folder of all, the hash of the document's bytes, and the state of its file then: while
that is the same, the bytes are not read to be compared. The text of a row that became a page is in the page table alone. The
table's metadata says how the documents were read. It takes part in nothing else: whoever reads the index reads its pages.
"""

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.corpus import image_store
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.problems import Problem, read_one
from drag_ray.corpus.readers.document_parts import PAGE_KEY, PAGE_ROWS
from drag_ray.errors import DataError
from drag_ray.index.config import READERS
from drag_ray.search.index import PAGES_NAME
from drag_ray.search.page_table import map_pages
from drag_ray.stage_runs.damage import read_list
from drag_ray.storage import artifacts, checksums
from drag_ray.storage.artifacts import Identity
from drag_ray.storage.file_access import reading
from drag_ray.storage.json_text import parse_json

_logger = logging.getLogger(__name__)

TABLE_NAME = "documents.parquet"
_UNREAD = {
    *("documents", "questions", "allow_unanswerable", "limit_pages"),
    *("metadata", "metadata_types", "access_column", "test_fraction", "split_by", "seed"),
}
"""Options of the corpus that no document is read by."""
_FORMER = {"corpus.ocr_min_chars": 100, "corpus.document_text_mib": 64, "corpus.document_total_cpu_s": 36_000.0}
"""Constants that were options: an earlier index says what they were then."""
_GROUP_ROWS = 8_192
"""of the table that are written at once"""
_SETTLED_NS = 2 * 10**9
"""A file that was written so shortly ago can be written again, and its state be the same: clocks of file systems are coarse."""
_MAX_HASHED_BYTES = 16 * 2**30
"""A larger document is read again each time: a file without contents may say that it has millions of times as many."""
_KEY = ["document", "content"]
_SCHEMA = pa.schema([*PAGE_ROWS, pa.field("content", pa.string()), pa.field("state", pa.string())])
_PAGES_PATH = f"search_index/{PAGES_NAME}"
_METADATA, _FOLDER = "drag_ray.reading", "folder"


@dataclass(frozen=True)
class KeptDocuments:
    """The documents of an index, and what an earlier one has read of them.

    Attributes:
        listed: `path`, `state`, `settled` (the state, unless it is too young to say that a file is the same), `document`,
            `content`, `rank`, a row each in order; those with `is_kept` are not read again.
        num_removed: documents that the earlier index has and this one has not.
        rows: those of the documents that are kept; None where none is.
        images_dir: the store of their images.
    """

    listed: pl.DataFrame
    num_removed: int = 0
    rows: pl.LazyFrame | None = None
    images_dir: Path | None = None

    def list_changed(self) -> dict[Path, str]:
        """The documents that are to be read, each with its content."""
        changed = self.listed.filter(~pl.col("is_kept"))
        return {Path(path): content for path, content in changed.select("path", "content").iter_rows()}

    def count(self) -> dict[str, int]:
        """Counts for a summary: kept_documents, read_documents, removed_documents."""
        num_kept = int(self.listed["is_kept"].sum())
        return {
            "kept_documents": num_kept,
            "read_documents": self.listed.height - num_kept,
            "removed_documents": self.num_removed,
        }

    def gather(self, part_paths: Sequence[Path], parts_dir: Path) -> pl.DataFrame:
        """The rows of what is kept and what was read, as `PAGE_ROWS` with the contents, in the order of the documents.

        Raises:
            ArtifactError: a part cannot be read.
        """
        sources = []
        if part_paths:
            parts = pl.scan_parquet(list(part_paths), glob=False).rename({"document": "path"})
            read = self._list_read().lazy().select(*_KEY, "path", "rank", state="settled")
            sources.append(parts.join(read, on="path", how="inner", maintain_order="left"))
        if self.rows is not None:
            ranks = self.listed.lazy().select(*_KEY, "rank", state="settled")
            sources.append(self.rows.drop("state").join(ranks, on=_KEY, how="inner", maintain_order="left"))
        # Both are in the order of the documents, which is that of their names.
        rows = reduce(
            lambda one, other: one.merge_sorted(other, "rank"), (source.select(*_SCHEMA.names, "rank") for source in sources)
        )
        with reading(parts_dir, f"Run: rm -r {parts_dir}, and the same command again: it reads the documents anew."):
            return rows.drop("rank").collect()

    def write(self, rows: pl.DataFrame, pages: pl.DataFrame, stage_dir: Path, reading_options: dict[str, Any]) -> None:
        """Write the table, and take the images of what is kept.

        Args:
            rows: see `gather`.
            pages: that became of them (see `document_parts.merge_rows`).

        Raises:
            ArtifactError: the disk refuses.
        """
        is_page = pl.int_range(pl.len(), dtype=pl.UInt32).is_in(pages["order"].implode())
        table = rows.with_columns(text=pl.when(is_page).then(pl.lit(None, pl.String)).otherwise("text"))
        schema = _SCHEMA.with_metadata({_METADATA: json.dumps(reading_options)})
        with (
            artifacts.whole_or_absent(stage_dir / TABLE_NAME) as scratch,
            # Arrow's writer: Polars says of a full disk what it says of a damaged part.
            pq.ParquetWriter(scratch, schema, compression="zstd") as writer,
        ):
            for batch in table.iter_slices(_GROUP_ROWS):
                writer.write_table(batch.to_arrow().cast(schema))
        if self.images_dir is not None:
            images = rows["image"].drop_nulls().unique()
            ImageStore(stage_dir / image_store.DIR_NAME).take_over(self.images_dir, images.filter(images != ""))

    def _list_read(self) -> pl.DataFrame:
        """The documents that were read; one that has changed since it was hashed has no content, so that it is read again."""
        read = self.listed.filter(~pl.col("is_kept"))
        is_same = read["state"] == pl.Series([_read_state(Path(path))[0] for path in read["path"]], dtype=pl.String)
        return read.with_columns(content=pl.when(is_same).then("content").otherwise(pl.lit("")))


def describe_reading(corpus: CorpusConfig, identity: Identity, root: Path) -> dict[str, Any]:
    """All that pages of documents depend on beside their bytes, and the folder that they are named from."""
    options = {f"corpus.{name}": value for name, value in corpus.model_dump(mode="json", exclude=_UNREAD).items()}
    versions = {name: identity.inputs.get(name, "") for name in READERS}
    return {"version of the stage": identity.version, **_FORMER, **options, **versions, _FOLDER: str(_find_folder(root))}


def find_kept(documents: Sequence[Path], root: Path, earlier_dir: Path | None, reading_options: dict[str, Any]) -> KeptDocuments:
    """Compare documents with those that an earlier index has read, by the hash of their bytes, which are not read where nobody
    has written the file since.

    One that could not be read, or compared, or has lost an image, is read again; all are where they would be read otherwise now.

    Args:
        documents: in their order.
        root: the folder of all.
        earlier_dir: the folder of the earlier index, finished.
        reading_options: see `describe_reading`.
    """
    problem = _find_problem(earlier_dir, reading_options) if earlier_dir else ""
    if earlier_dir is None or problem:
        if problem:
            _logger.info(f"All documents are read: {problem}.")
        return KeptDocuments(_list_contents(documents, root, {}).with_columns(is_kept=pl.lit(False)))
    rows = pl.scan_parquet(earlier_dir / TABLE_NAME)
    with reading(earlier_dir):
        if "state" not in rows.collect_schema():  # as of an earlier version
            rows = rows.with_columns(state=pl.lit(""))
        is_broken = (pl.col("kind") == "broken_file").any()
        known = rows.group_by(*_KEY, "state").agg(is_broken.alias("is_broken"), pl.col("image").unique()).collect()
        images_dir = earlier_dir / image_store.DIR_NAME
        there = pl.Series(["", *ImageStore(images_dir).list_keys()], dtype=pl.String)
        has_images = pl.col("image").list.eval(pl.element().is_null() | pl.element().is_in(there.implode())).list.all()
        sound = known.filter(~pl.col("is_broken") & has_images & (pl.col("content") != ""))
    states = {(document, state): content for document, content, state in known.select(*_KEY, "state").iter_rows() if state}
    listed = _list_contents(documents, root, states)
    kept = listed.join(sound.with_columns(is_kept=pl.lit(True)), on=_KEY, how="left", maintain_order="left")
    kept = kept.select(*listed.columns, pl.col("is_kept").fill_null(False))
    num_removed = known.join(listed, on="document", how="anti")["document"].n_unique()
    # Places and reasons name documents by their whole paths, within which the name of the folder may come again.
    folders = (f"{reading[_FOLDER]}/" for reading in (_read_reading(earlier_dir), reading_options))
    named = pl.col("place", "reason").str.replace(*folders, literal=True)
    taken = rows.with_columns(named).join(kept.lazy().filter("is_kept"), on=_KEY, how="semi", maintain_order="left")
    pages = pl.DataFrame(map_pages(earlier_dir / _PAGES_PATH).select([*PAGE_KEY, "text"])).lazy()
    whole = taken.join(pages, on=PAGE_KEY, how="left", maintain_order="left").with_columns(pl.coalesce("text", "text_right"))
    return KeptDocuments(kept, num_removed, whole if kept["is_kept"].any() else None, images_dir)


def _list_contents(documents: Sequence[Path], root: Path, known: Mapping[tuple[str, str], str]) -> pl.DataFrame:
    """The documents, their bytes by what is known of those of a name and a state."""
    settled_ns, found_states = time.time_ns() - _SETTLED_NS, [_read_state(path) for path in documents]  # before their bytes are
    states = [state for state, _ in found_states]
    settled = [state if changed_ns < settled_ns else "" for state, changed_ns in found_states]
    names = [str(path).removeprefix(f"{_find_folder(root)}/") for path in documents]
    found = [known.get(key, "") for key in zip(names, states, strict=True)]
    with ThreadPoolExecutor() as pool:
        hashed = pool.map(_hash, (path for path, content in zip(documents, found, strict=True) if not content))
        contents = [content or next(hashed) for content in found]
    columns = {"path": list(map(str, documents)), "state": states, "settled": settled, "document": names, "content": contents}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String)).with_row_index("rank")


def _find_folder(root: Path) -> Path:
    return root if root.is_dir() else root.parent


def _read_state(path: Path) -> tuple[str, int]:
    """A mark that is another after every write of a document, where the file system keeps the time of the last change, which no
    program sets, and that time in nanoseconds; empty, and 0, where it cannot be told."""
    status = read_one("broken_file", str(path), path.stat)
    if isinstance(status, Problem):
        return "", 0
    return f"{status.st_size} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}", status.st_ctime_ns


def _hash(path: Path) -> str:
    """Hexadecimal digits that stand for the bytes of a document; empty where they cannot be read."""
    digest = read_one("broken_file", str(path), _digest, path)  # reading it says what is wrong
    return "" if isinstance(digest, Problem) else digest


def _digest(path: Path) -> str:
    if path.stat().st_size > _MAX_HASHED_BYTES:
        raise DataError(f"{path}: too large to be compared.")
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:32]


def _find_problem(earlier_dir: Path, reading_options: dict[str, Any]) -> str:
    """The reason why nothing of an earlier index can be kept; empty where it can."""
    listed = {checksum.path: checksum for checksum in read_list(earlier_dir, artifacts.require_manifest(earlier_dir)) or []}
    for path in (TABLE_NAME, _PAGES_PATH):
        if path not in listed or checksums.compare(earlier_dir / path, listed[path]):
            return f"{earlier_dir / path} is missing (as in an index of an earlier version) or was changed"
    earlier = _read_reading(earlier_dir)
    others = [name for name in (earlier | reading_options) if earlier.get(name) != reading_options.get(name) and name != _FOLDER]
    return f"those of the earlier index were read with another {', '.join(others)}" if others else ""


def _read_reading(earlier_dir: Path) -> dict[str, Any]:
    with reading(earlier_dir):
        return parse_json(pl.read_parquet_metadata(earlier_dir / TABLE_NAME)[_METADATA])
