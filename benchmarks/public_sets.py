"""The public question and retrieval sets of a data folder, by default `../shared/data` beside the checkout, as indexes to ask."""

import csv
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drag_ray import schemas
from drag_ray.corpus.questions import check_evidence, read_questions
from drag_ray.corpus.readers.documents import read_pages
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts
from drag_ray.types import Page, Question

DATA_DIR = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True)
class PageSet:
    """Pages and the questions whose pages are among them."""

    pages: list[Page]
    questions: list[Question]


@dataclass(frozen=True)
class RetrievalSet:
    """A test collection: `documents` and `queries` are texts by id, `judgements` are grades by query and document."""

    documents: dict[str, str]
    queries: dict[str, str]
    judgements: dict[str, dict[str, int]]


def require(folder: Path) -> Path:
    """The folder, or the end of the program with a line that says what is missing."""
    if not folder.is_dir():
        raise SystemExit(f"{folder}: no such folder, so there is nothing to measure. Name the data folder with --data-dir.")
    return folder


def read_page_set(folder: Path, pages_name: str = "pages.jsonl.gz") -> PageSet:
    """Read `pages.jsonl.gz` and `questions.jsonl`; what cannot be read is left out, as the index stage leaves it out."""
    pages, _ = read_pages(folder / pages_name)
    questions, _ = read_questions(folder / "questions.jsonl")
    return PageSet(pages, check_evidence(questions, {(page.file, page.page_number) for page in pages})[0])


def read_retrieval_set(folder: Path) -> RetrievalSet:
    """Read `corpus.jsonl.gz`, `queries.jsonl` and `qrels.tsv`; queries without a judgement are left out."""
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as stream:
        documents = {row["id"]: row["text"] for row in map(json.loads, stream)}
    judgements: dict[str, dict[str, int]] = {}
    with (folder / "qrels.tsv").open(encoding="utf-8") as stream:
        for query_id, document_id, grade in csv.reader(stream, delimiter="\t"):
            judgements.setdefault(query_id, {})[document_id] = int(grade)
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    queries = {row["id"]: row["text"] for row in map(json.loads, lines) if row["id"] in judgements}
    return RetrievalSet(documents, queries, judgements)


def to_pages(documents: dict[str, str]) -> list[Page]:
    """Each document as a file of one page."""
    return [Page(name, 1, 1, text, "jsonl") for name, text in documents.items()]


def build_searcher(pages: Sequence[Page], folder: Path) -> Searcher:
    """Index pages with the default options and open the index."""
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "search_index", SearchConfig())
    return Searcher(folder / "search_index")
