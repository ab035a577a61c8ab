"""Build a page index: a Tantivy index of the page texts beside the table of pages in Arrow.

    search_index/
      tantivy/        one document a page: its text (indexed) and its row in the page table (fast field)
      pages.arrow     file, page_number, total_pages, text, ...; sorted, uncompressed, memory-mapped by every searcher
      metadata.parquet  what the user says of each document (see `metadata`), if anything
      index.json      what made the index
      checksums.jsonl the sizes and hashes of all these (see `checksums`), wherever the folder goes

The file name is not part of the searchable text: a query cannot ask for the page that it wants by name.
"""

import os
import shutil
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar, get_args

import numpy as np
import polars as pl

from drag_ray.errors import DataError, DragRayError, SearchIndexError
from drag_ray.search import segments
from drag_ray.search.config import AnalyzerName, SearchConfig, Syntax
from drag_ray.search.metadata import Metadata, read_metadata
from drag_ray.search.page_table import PageTable, compute_order, map_texts, write_pages, write_source
from drag_ray.search.shards import NUM_SHARDS, build_tantivy, count_shards
from drag_ray.storage import artifacts, checksums
from drag_ray.storage.artifacts import new_folder, replaced_folder
from drag_ray.storage.checksums import Checksum
from drag_ray.storage.file_access import explain_memory, writing
from drag_ray.storage.json_text import parse_json

INDEX_NAME = "index.json"
PAGES_NAME = "pages.arrow"
TANTIVY_DIR_NAME = "tantivy"
_LAST_FILE = f"{TANTIVY_DIR_NAME}/meta.json"
"""In order of their names: segments have names of hexadecimal digits."""
INDEX_FORMAT = 5
"""Counts the layouts of an index folder and the normal forms of its texts; one of another format is built again."""
REBUILD = "Build it again: python jobs/index.py --verify"


@dataclass(frozen=True)
class IndexRecord:
    """The record of what made an index. `fingerprint` stands for the page texts, the analyzer, Tantivy's version and the format.

    `source` is the Parquet file of the pages as a path from the index folder, and `source_fingerprint` its content.
    """

    fingerprint: str
    num_pages: int
    analyzer: str
    syntax: str
    operator: str
    tantivy_version: str
    source: str
    source_fingerprint: str
    max_query_ms: int
    format: int = INDEX_FORMAT


def build_index(
    pages_path: Path,
    index_dir: Path,
    config: SearchConfig,
    metadata: Metadata | None = None,
    earlier_dir: Path | None = None,
    pages: pl.DataFrame | None = None,
) -> Checksum:
    """Index the pages of a Parquet file into `index_dir`, replacing what is there.

    Pages are sorted by (file, page_number) and indexed on all cores; equal input gives equal rankings,
    whatever the number of cores and shards. Of a file, the texts of all pages are never in memory at once. A large index leaves
    its segments beside it (see `segments`), so that an index of other pages is built of them. Returns the checksum of the file.
    Args:
        metadata: of the files of these pages; None where nothing is said of them.
        earlier_dir: the folder of an index of the pages as they were before, whole; the result is the same without it.
        pages: in order, where they are in memory: the file is written meanwhile.

    Raises:
        DataError: the file does not hold pages, or holds none, or the metadata are of other files.
        ArtifactError: no space is left, or the folder cannot be written.
    """
    order = compute_order(pages_path) if pages is None else np.arange(pages.height)
    if not len(order):
        raise DataError(f"{pages_path}: holds no page, so there is nothing to search. Check the documents of the index stage.")
    with replaced_folder(index_dir) as scratch, _building():
        return _write_index(pages_path, index_dir, scratch, config, order, metadata, earlier_dir, pages)


def _write_index(
    pages_path: Path,
    index_dir: Path,
    scratch: Path,
    config: SearchConfig,
    order: np.ndarray,
    metadata: Metadata | None,
    earlier_dir: Path | None,
    pages: pl.DataFrame | None,
) -> Checksum:
    with ThreadPoolExecutor() as pool:  # a merge takes one core
        source = pool.submit(_settle_source, pages_path, pages)
        write_pages(pages_path if pages is None else pages, order, scratch / PAGES_NAME)
        settled = pool.submit(_settle_pages, scratch)
        documents = _write_metadata(metadata, scratch) if metadata else ()
        _write_tantivy(scratch, locate_segments(index_dir), config, documents, earlier_dir)
        [source_checksum], [checksum] = source.result(), settled.result()
    record = IndexRecord(
        fingerprint=artifacts.compute_fingerprint(checksum.sha256[:16], config.analyzer, version("tantivy"), INDEX_FORMAT),
        num_pages=len(order),
        analyzer=config.analyzer,
        syntax=config.syntax,
        operator=config.operator,
        tantivy_version=version("tantivy"),
        source=os.path.relpath(pages_path, index_dir),
        source_fingerprint=source_checksum.sha256[:16],
        max_query_ms=config.max_query_ms,
    )
    artifacts.write_json(scratch / INDEX_NAME, asdict(record))
    write_checksums(scratch, [checksum])
    return source_checksum


def _settle_source(path: Path, pages: pl.DataFrame | None) -> list[Checksum]:
    """Write the pages into their file, if they are not there, and return its checksum."""
    if pages is not None:
        write_source(path, pages)
    return checksums.compute_checksums(path.parent, [path.name])


def _settle_pages(scratch: Path) -> list[Checksum]:
    """Bring the page table to the disk, and return its checksum."""
    artifacts.sync_files(scratch, [PAGES_NAME])
    return checksums.compute_checksums(scratch, [PAGES_NAME])


def locate_segments(index_dir: Path) -> Path:
    """The folder of the segments that an index is merged from, beside it."""
    return index_dir.with_name(f"{index_dir.name}_segments")


def _write_tantivy(
    scratch: Path, segments_dir: Path, config: SearchConfig, documents: Sequence[int], earlier_dir: Path | None
) -> None:
    texts, tantivy_dir = map_texts(scratch / PAGES_NAME), scratch / TANTIVY_DIR_NAME
    if count_shards(len(texts)) < NUM_SHARDS:
        shutil.rmtree(segments_dir, ignore_errors=True)
        build_tantivy(texts, tantivy_dir, config.analyzer, documents)
        return
    earlier = _plan_update(scratch, config, earlier_dir) if earlier_dir else None
    with replaced_folder(segments_dir) as folder:
        for update in (*([earlier] if earlier else []), segments.plan_first(len(texts))):
            if segments.build_merged(texts, update, (folder, tantivy_dir), config.analyzer, documents):
                break
            for path in (*folder.iterdir(), *tantivy_dir.iterdir()):
                path.unlink()
        else:
            raise OSError("Tantivy has not merged the segments: there may be too little space")
        write_checksums(folder, _list_linked(folder, update.kept_dir) if update.kept_dir else ())


def _list_linked(folder: Path, kept_dir: Path) -> list[Checksum]:
    """The checksums of the files that a folder shares with another one, which was compared with its list."""
    listed = checksums.parse_list((kept_dir / checksums.LIST_NAME).read_text(encoding="utf-8"))
    places = ((checksum, kept_dir / checksum.path, folder / checksum.path) for checksum in listed)
    return [checksum for checksum, one, other in places if other.exists() and other.samefile(one)]


def _plan_update(scratch: Path, config: SearchConfig, earlier_dir: Path) -> segments.Update | None:
    """The difference from an earlier index; None where it has no segments, is of another kind or damaged, or where documents with
    metadata have come or gone: segments name a document by its place among all."""
    segments_dir = locate_segments(earlier_dir)
    try:
        record = read_record(earlier_dir)
        check_files(earlier_dir, whole=True, quick_prefixes=(f"{TANTIVY_DIR_NAME}/",))
        check_files(segments_dir, segments.STALE_NAME, whole=True)
    except SearchIndexError:
        return None
    metadata, earlier = (read_metadata(folder) for folder in (scratch, earlier_dir))
    is_alike = record.analyzer == config.analyzer and (metadata and metadata.files) == (earlier and earlier.files)
    if not is_alike:
        return None
    return segments.plan_update(scratch / PAGES_NAME, earlier_dir / PAGES_NAME, segments_dir, config.analyzer)


def _write_metadata(metadata: Metadata, scratch: Path) -> Sequence[int]:
    """Write what is said of the documents, and return the place of each page's document among them."""
    pages = PageTable(scratch / PAGES_NAME)
    if metadata.files != pages.files:
        raise DataError("the metadata are of other documents than the pages. Give a row for each file that has pages.")
    metadata.write(scratch)
    return np.repeat(np.arange(len(pages.files)), pages.lengths).tolist()


@contextmanager
def _building() -> Generator[None]:
    """Errors of the disk as such: Tantivy raises its own as ValueErrors."""
    try:
        yield
    except DragRayError:
        raise
    except ValueError as error:
        raise OSError(str(error)) from error


def read_record(index_dir: Path) -> IndexRecord:
    """Read what made the index. Raises SearchIndexError: there is no finished index, its layout or Tantivy's version is another,
    or its pages have changed."""
    record = _read_record(index_dir)
    if record.tantivy_version != version("tantivy"):
        raise SearchIndexError(
            f"{index_dir}: built with tantivy {record.tantivy_version}, this is {version('tantivy')}. {REBUILD}"
        )
    source = index_dir / record.source
    if source.is_file() and artifacts.compute_file_fingerprint(source) != record.source_fingerprint:
        raise SearchIndexError(f"{index_dir}: stale, {source.resolve()} has changed since it was indexed. {REBUILD}")
    return record


def read_fingerprint(index_dir: Path) -> str:
    """The fingerprint of an index, whose pages are not looked at. Raises SearchIndexError: there is no finished index, or its
    layout is another."""
    return _read_record(index_dir).fingerprint


def write_checksums(folder: Path, known: Iterable[Checksum] = ()) -> None:
    """List the files of a folder, complete but for the list, in the list that `check_files` reads; `known` are not read."""
    paths = checksums.list_files(folder)
    artifacts.sync_files(folder, paths)
    listed = checksums.compute_checksums(folder, paths, known=known)
    artifacts.write_text(folder / checksums.LIST_NAME, checksums.format_list(listed))


def check_files(folder: Path, last_file: str = _LAST_FILE, whole: bool = False, quick_prefixes: tuple[str, ...] = ()) -> None:
    """Look quickly whether the files of an index, or of its vectors, are what was written; with `whole` at every byte, except
    below `quick_prefixes`. Raises SearchIndexError: names those that are not, and what was found and expected."""
    path = folder / checksums.LIST_NAME
    try:
        listed = checksums.parse_list(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SearchIndexError(f"{path}: cannot be read ({error}). {REBUILD}") from None
    if not listed or listed[-1].path != last_file:
        raise SearchIndexError(f"{path}: cut short, {last_file} is not in it. {REBUILD}")
    damage = checksums.find_damage(folder, listed, whole, quick_prefixes)
    if damage:
        raise SearchIndexError(f"{folder}: damaged: {checksums.describe_damage(damage)}. {REBUILD}")


def _read_record(index_dir: Path) -> IndexRecord:
    path = index_dir / INDEX_NAME
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
        found = values.get("format", 1)
        if found != INDEX_FORMAT:
            raise SearchIndexError(f"{index_dir}: an index of format {found}, this code reads format {INDEX_FORMAT}. {REBUILD}")
        record = IndexRecord(**values)
        for name, value, known in (
            ("analyzer", record.analyzer, get_args(AnalyzerName)),
            ("syntax", record.syntax, get_args(Syntax)),
        ):
            if value not in known:
                raise SearchIndexError(f"{index_dir}: built with {name} {value!r}, expected one of {', '.join(known)}. {REBUILD}")
        return record
    except FileNotFoundError:
        raise SearchIndexError(f"{index_dir}: no finished search index. Build it: python jobs/index.py") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SearchIndexError(f"{path}: not an index record ({error}). {REBUILD}") from None


def copy_to_node(index_dir: Path, node_dir: Path) -> Path:
    """The copy of an index in a folder of this node, made by whoever asks first while others wait.

    It lies under the hash of its list of files, so an index that is built anew gets a copy of its own. Nothing is removed.

    Raises:
        SearchIndexError: there is no index, or what came of it is not what was written.
        ArtifactError: the disk refuses.
    """
    from filelock import FileLock

    check_files(index_dir)
    copy = node_dir / artifacts.compute_file_fingerprint(index_dir / checksums.LIST_NAME)
    with writing(node_dir):
        node_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(node_dir / f".lock-{copy.name}"):
            if not copy.is_dir():
                _copy(index_dir, copy)
    return copy


def _copy(index_dir: Path, copy: Path) -> None:
    with new_folder(copy, "") as scratch:
        shutil.copytree(index_dir, scratch, dirs_exist_ok=True)
        listed = checksums.parse_list((scratch / checksums.LIST_NAME).read_text(encoding="utf-8"))
        damage = checksums.find_damage(scratch, listed, whole=True)
        if damage:
            raise SearchIndexError(f"{index_dir}: damaged, or on its way here: {checksums.describe_damage(damage)}. {REBUILD}")


_PANIC = "PanicException"
"""Rust's panic in Python. It derives from BaseException, and its class cannot be imported."""


class _OpenIndex(Protocol):
    index_dir: Path


Index = TypeVar("Index", bound=_OpenIndex)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def guard(method: Callable[Concatenate[Index, Arguments], Result]) -> Callable[Concatenate[Index, Arguments], Result]:
    """A method that reads an index, with its errors over damaged files, and of memory, as SearchIndexErrors."""

    @wraps(method)
    def guarded(index: Index, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return method(index, *args, **kwargs)
        except MemoryError as error:
            raise SearchIndexError(f"{index.index_dir}: cannot be read: {explain_memory(error)}") from error
        except BaseException as error:
            if not _may_be_damage(error):
                raise
            raise SearchIndexError(
                f"{index.index_dir}: cannot be read ({type(error).__name__}: {error}); its files may be damaged. "
                "This looks at every byte and builds it again if they are: python jobs/index.py --verify"
            ) from None

    return guarded


def _may_be_damage(error: BaseException) -> bool:
    is_raised = isinstance(error, ValueError | LookupError | ArithmeticError | OSError) and not isinstance(error, DragRayError)
    return is_raised or type(error).__name__ == _PANIC
