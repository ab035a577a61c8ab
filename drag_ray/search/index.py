"""Build a page index: a Tantivy index of the page texts beside the table of pages in Arrow.

    search_index/
      tantivy/        one document a page: its text (indexed) and its row in the page table (fast field)
      pages.arrow     file, page_number, total_pages, text; sorted, uncompressed, memory-mapped by every searcher
      index.json      what made the index; written last

The file name is not part of the searchable text: a query cannot ask for the page that it wants by name.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import tantivy
from tqdm import tqdm

from drag_ray import artifacts, schemas
from drag_ray.errors import DataError, SearchIndexError
from drag_ray.search.analyzer import build_analyzer
from drag_ray.search.config import SearchConfig

INDEX_NAME = "index.json"
PAGES_NAME = "pages.arrow"
TANTIVY_DIR_NAME = "tantivy"
TOKENIZER_NAME = "drag_ray"
_WRITER_HEAP_BYTES = 512 * 1024 * 1024
_BATCH_PAGES = 1_024


@dataclass(frozen=True)
class IndexRecord:
    """What made an index. `fingerprint` stands for the page texts, the analyzer and Tantivy's version."""

    fingerprint: str
    num_pages: int
    analyzer: str
    operator: str
    tantivy_version: str


def build_schema() -> tantivy.Schema:
    """The fields of a page: `text` with term frequencies, and `row`, its place in the page table."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", stored=False, tokenizer_name=TOKENIZER_NAME, index_option="position")
    builder.add_integer_field("row", stored=False, indexed=False, fast=True)
    return builder.build()


def build_index(pages_path: Path, index_dir: Path, config: SearchConfig) -> IndexRecord:
    """Index the pages of a Parquet file into `index_dir`, replacing what is there.

    Pages are sorted by (file, page_number) and written by one thread, so that equal input gives an equal index.

    Raises:
        DataError: the file does not hold pages, or holds none.
    """
    pages = schemas.read_table(pages_path, schemas.PAGES).sort_by([("file", "ascending"), ("page_number", "ascending")])
    if pages.num_rows == 0:
        raise DataError(f"{pages_path}: holds no page, so there is nothing to search. Check the documents of the index stage.")
    scratch = index_dir.with_name(f".{index_dir.name}.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / TANTIVY_DIR_NAME).mkdir(parents=True)
    _write_pages(pages, scratch / PAGES_NAME)
    _write_tantivy(pages, scratch / TANTIVY_DIR_NAME, config)
    record = IndexRecord(
        fingerprint=_compute_fingerprint(scratch / PAGES_NAME, config),
        num_pages=pages.num_rows,
        analyzer=config.analyzer,
        operator=config.operator,
        tantivy_version=version("tantivy"),
    )
    artifacts.write_json(scratch / INDEX_NAME, asdict(record))
    shutil.rmtree(index_dir, ignore_errors=True)
    scratch.rename(index_dir)
    return record


def read_record(index_dir: Path) -> IndexRecord:
    """Read what made the index.

    Raises:
        SearchIndexError: there is no finished index, or another version of Tantivy wrote it.
    """
    try:
        record = IndexRecord(**json.loads((index_dir / INDEX_NAME).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise SearchIndexError(f"{index_dir}: no finished search index. Build it: python jobs/index.py") from None
    except (ValueError, TypeError) as error:
        raise SearchIndexError(
            f"{index_dir / INDEX_NAME}: not an index record ({error}). Build it again: python jobs/index.py"
        ) from None
    if record.tantivy_version != version("tantivy"):
        raise SearchIndexError(
            f"{index_dir}: built with tantivy {record.tantivy_version}, this is {version('tantivy')}. "
            "Build it again: python jobs/index.py"
        )
    return record


def _write_pages(pages: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pages.schema) as writer:
        writer.write_table(pages.combine_chunks())


def _write_tantivy(pages: pa.Table, tantivy_dir: Path, config: SearchConfig) -> None:
    schema = build_schema()
    index = tantivy.Index(schema, path=str(tantivy_dir))
    index.register_tokenizer(TOKENIZER_NAME, build_analyzer(config.analyzer))
    writer = index.writer(heap_size=_WRITER_HEAP_BYTES, num_threads=1)
    row = 0
    with tqdm(total=pages.num_rows, desc="indexing", unit=" pages", mininterval=1) as progress:
        for batch in pages.select(["text"]).to_batches(max_chunksize=_BATCH_PAGES):
            for text in batch.column("text").to_pylist():
                writer.add_document(tantivy.Document.from_dict({"text": text, "row": row}, schema))
                row += 1
            progress.update(batch.num_rows)
    writer.commit()
    writer.wait_merging_threads()


def _compute_fingerprint(pages_path: Path, config: SearchConfig) -> str:
    return artifacts.compute_fingerprint(artifacts.compute_file_fingerprint(pages_path), config.analyzer, version("tantivy"))
