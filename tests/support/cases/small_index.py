"""The files of an index stage over pages and questions that a test made up."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from factories import build_page

from drag_ray import schemas
from drag_ray.corpus import links
from drag_ray.corpus.near_duplicates import NO_NEAR_DUPLICATES, write_near_duplicates
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.metadata import Metadata
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Page, Question


def open_index(folder: Path, pages: Sequence[Page], metadata: Metadata | None = None, **options: Any) -> Searcher:
    """The search index of these pages alone, built with these options and opened."""
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "search_index", SearchConfig(**options), metadata)
    return Searcher(folder / "search_index")


def write_index(folder: Path, pages: Sequence[Page], questions: Sequence[Question], **options: Any) -> None:
    """Pages, questions and the search index, without a manifest."""
    open_index(folder, pages, **options)
    artifacts.write_parquet(folder / "questions.parquet", schemas.to_table(questions, schemas.QUESTIONS))
    write_near_duplicates(folder, NO_NEAR_DUPLICATES)
    artifacts.write_parquet(folder / links.TABLE_NAME, schemas.LINKS.empty_table())


def finish_index(run_dir: Path, pages: Sequence[Page], questions: Sequence[Question]) -> None:
    """The same as a stage of a run that has finished."""
    with StageFolder(run_dir / "index", Identity("index", {}, {})) as folder:
        write_index(folder.path, pages, questions)
        folder.finish({})


def index_texts(folder: Path, texts: Sequence[str], file: str = "manual.pdf", **options: Any) -> Searcher:
    """The index of one file, whose pages say this, as the index stage leaves it."""
    write_index(
        folder,
        [build_page(file=file, page_number=number, text=text) for number, text in enumerate(texts, start=1)],
        [],
        **options,
    )
    return Searcher(folder / "search_index")
