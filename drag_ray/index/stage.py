"""The index stage: documents -> pages -> search index, and questions with their splits."""

import logging
import shutil
import sys
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import ray
import ray.data
from tqdm.auto import tqdm

from drag_ray import schemas
from drag_ray.cluster.metrics import open_stage_recorder
from drag_ray.cluster.nodes import find_seeing
from drag_ray.corpus import image_store, links, question_images
from drag_ray.corpus.config import COMMANDS, CorpusConfig
from drag_ray.corpus.document_metadata import describe, read_document_metadata
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.near_duplicates import (
    NearDuplicates,
    count_near_duplicates,
    find_near_duplicates,
    list_evidence,
    write_near_duplicates,
)
from drag_ray.corpus.problems import Problem, count_problems, name_first
from drag_ray.corpus.question_images import QuestionImages
from drag_ray.corpus.questions import check_evidence, read_questions
from drag_ray.corpus.readers import document_parts
from drag_ray.corpus.readers.document_parts import ReadingCosts
from drag_ray.corpus.readers.document_process import DocumentProcess, open_process
from drag_ray.corpus.readers.documents import list_documents
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.corpus.split import split_questions
from drag_ray.errors import ConfigError, DataError
from drag_ray.examples.commands import QUESTIONS_NAME, build_commands
from drag_ray.index import vector_parts
from drag_ray.index.config import IndexSections
from drag_ray.index.kept_documents import KeptDocuments, describe_reading, find_kept
from drag_ray.search.index import build_index
from drag_ray.search.metadata import Metadata
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage import artifacts
from drag_ray.storage.object_store import fetch_files, is_uri
from drag_ray.types import Question

_logger = logging.getLogger(__name__)

_COPIES = ".documents", ".questions", ".metadata"
"""From an object store, hidden: they are no files of the stage."""
# A task costs Ray Data some 50 ms, so small collections get few for each core, and large ones one for some parts.
_PARTS_AT_FULL_COST = 60
"""Parts of a document that may take all CPU seconds that a part may take, before the others are set aside."""
_TASKS_PER_CPU = 8
_PARTS_PER_TASK = 8


def run(sections: IndexSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Read the documents on all workers, build the index, and prepare the questions.

    Documents that the index whose place this takes has read, and that have not changed since, are taken from there.

    Writes `documents.parquet` (what was read of each, see `kept_documents`), `pages.parquet`, `links.parquet` (addresses that
    pages link to), `search_index/`, of a large one `search_index_segments/` (see `search.segments`), `questions.parquet`,
    `near_duplicates.parquet` (among their evidence pages), `problems.jsonl` (what was set aside and why), with
    `corpus.page_images` also `page_images/`, of questions with images `question_images/`, with `embedding.model` also `vectors/`,
    with `image_embedding.model` also `image_vectors/`, and for an embedded corpus `documents/`. The paths of the documents, of
    the run and of the embedding models must mean the same to the driver and to every worker.

    Returns:
        Counts: documents, kept_documents, read_documents, removed_documents, pages, pages_by_ocr, pages_without_text, questions,
        train, test, near_duplicate_pages (evidence pages with a near-duplicate), windows (of the pages, if they have vectors),
        embedded_pictures (if they have), set_aside, and of what kinds, doubtful_pages (if any).

    Raises:
        ConfigError: the options contradict each other.
        ConfigError: no node with a CPU sees the folder of the stage.
        DataError: no page, or no question where questions are asked for, could be read, or a page's picture is damaged before
            it is embedded.
    """
    corpus, index_dir = sections.corpus, folder.path / "search_index"
    _check(sections)
    root = _prepare_documents(corpus, folder)
    questions_path = root / QUESTIONS_NAME if corpus.questions == COMMANDS else _locate(corpus.questions, _COPIES[1], folder)
    metadata_path = _locate(corpus.metadata, _COPIES[2], folder)
    documents, problems = list_documents(root, questions_path, metadata_path)
    asked, question_problems = _read_questions(corpus, questions_path, root, folder)
    reading = describe_reading(corpus, folder.identity, root)
    kept = find_kept(documents, root, folder.earlier, reading)
    rows, pages, page_problems = _gather_pages(kept, root, corpus, folder)
    metadata, metadata_problems = _read_metadata(corpus, metadata_path, pages)
    questions, near_duplicates, lost = _split_questions(asked, pages, corpus, questions_path)
    problems += page_problems + metadata_problems + question_problems + lost
    problems = _name_sources(problems, {corpus.documents: root, corpus.questions: questions_path, corpus.metadata: metadata_path})
    kept.write(rows, pages, folder.path, reading)
    artifacts.write_parquet(folder.path / links.TABLE_NAME, document_parts.merge_links(rows))
    artifacts.write_parquet(folder.path / "questions.parquet", schemas.to_table(questions, schemas.QUESTIONS))
    write_near_duplicates(folder.path, near_duplicates)
    artifacts.write_jsonl(folder.path / "problems.jsonl", [asdict(problem) for problem in problems])
    earlier_dir = folder.earlier / index_dir.name if folder.earlier else None
    pages_path = folder.path / "pages.parquet"
    folder.known.append(build_index(pages_path, index_dir, sections.search, metadata, earlier_dir, pages))
    counts = {"documents": len(documents), **kept.count(), **_count(pages, questions)}
    counts["near_duplicate_pages"] = count_near_duplicates(near_duplicates)
    counts |= _embed(sections, index_dir, folder)
    # Until here a stage that is started again goes on with its parts.
    for name in (document_parts.DIR_NAME, vector_parts.DIR_NAME, vector_parts.IMAGES_DIR_NAME, *_COPIES):
        shutil.rmtree(folder.path / name, ignore_errors=True)
    counted = count_problems(problems)
    if counted["set_aside"]:
        _logger.warning(f"set aside: {counted['set_aside']:,}, each with place and reason in the stage's problems.jsonl")
    return {**counts, **counted}


def _check(sections: IndexSections) -> None:
    """Check early what would be noticed only after the documents have been read, which may take hours."""
    corpus = sections.corpus
    if sections.embedding.model:
        from drag_ray.engine.encoders.embedding import Embedder  # PyTorch takes seconds to import

        Embedder(sections.embedding, "meta")
    if sections.image_embedding.model:
        from drag_ray.engine.encoders.embedding import ImageEmbedder

        ImageEmbedder(sections.image_embedding, "meta")
        if not corpus.page_images:
            raise ConfigError(
                "image_embedding.model: there are no pictures of pages to embed. Set --corpus.page-images, or leave it empty."
            )
    if corpus.questions == COMMANDS != corpus.documents:
        raise ConfigError(
            f"corpus.questions is {corpus.questions!r}, but corpus.documents is {corpus.documents!r}. "
            "Name the file with the questions about these documents, or leave corpus.questions empty."
        )


def _embed(sections: IndexSections, index_dir: Path, folder: StageFolder) -> dict[str, int]:
    """Write the vectors of the pages, of the kinds that are asked for; returns counts of each."""
    counts: dict[str, int] = {}
    if sections.embedding.model:
        counts["windows"] = vector_parts.embed_texts(sections.embedding, index_dir, folder)
    if sections.image_embedding.model:
        images_dir = folder.path / image_store.DIR_NAME
        counts["embedded_pictures"] = vector_parts.embed_pictures(sections.image_embedding, index_dir, images_dir, folder)
    return counts


def _count(pages: pl.DataFrame, questions: list[Question]) -> dict[str, int]:
    return {
        "pages": pages.height,
        "pages_by_ocr": int((pages["text_source"] == "ocr").sum()),
        "pages_without_text": int((pages["text"] == "").sum()),
        "questions": len(questions),
        "train": sum(question.split == "train" for question in questions),
        "test": sum(question.split == "test" for question in questions),
    }


def _prepare_documents(corpus: CorpusConfig, folder: StageFolder) -> Path:
    if corpus.documents != COMMANDS:
        return (_locate(corpus.documents, _COPIES[0], folder) or Path()).resolve()
    root = folder.path.resolve() / "documents"
    # The questions are written last, so a resumed stage can tell that the documents are whole.
    if (root / QUESTIONS_NAME).exists():
        return root
    _logger.info("building the command reference of the AWS CLI")
    build_commands(root, corpus.limit_pages)
    return root


def _gather_pages(
    kept: KeptDocuments, root: Path, corpus: CorpusConfig, folder: StageFolder
) -> tuple[pl.DataFrame, pl.DataFrame, list[Problem]]:
    """The rows of the documents, of which only those that have changed are read, their pages, and what could not be read."""
    told = "documents: {read_documents:,} to read, {kept_documents:,} kept as they were, {removed_documents:,} removed"
    _logger.info(told.format_map(kept.count()))
    part_paths = _read_documents(kept.list_changed(), root, corpus, folder)
    rows = kept.gather(part_paths, folder.path / document_parts.DIR_NAME)
    pages, problems = document_parts.merge_rows(rows, corpus.limit_pages)
    if pages.is_empty():
        what = f"{kept.listed.height} documents, but no page could be read.{name_first(problems)}"
        raise DataError(f"corpus.documents {root}: {what}")
    return rows, pages, problems


def _split_questions(
    asked: list[Question], pages: pl.DataFrame, corpus: CorpusConfig, path: Path | None
) -> tuple[list[Question], NearDuplicates, list[Problem]]:
    """The questions with evidence among the pages, each with its split, what their pages nearly duplicate, and what was left
    out."""
    drawn, lost = check_evidence(asked, set(pages.select("file", "page_number").iter_rows()))
    if asked and not drawn:
        raise DataError(
            f"corpus.questions {path}: no question with an evidence page in the corpus.{name_first(lost)} "
            "The questions must name files as the pages do."
        )
    near_duplicates = find_near_duplicates(pages, list_evidence(drawn))
    questions, overlaps = split_questions(drawn, corpus.test_fraction, corpus.seed, corpus.split_by, near_duplicates)
    return questions, near_duplicates, lost + overlaps


def _read_documents(contents: dict[Path, str], root: Path, corpus: CorpusConfig, folder: StageFolder) -> list[Path]:
    """The files of the parts of all documents, in the documents' order; only parts without a file are read.

    Args:
        contents: the documents, each with the hash of its bytes.
    """
    ray.data.DataContext.get_current().enable_progress_bars = False
    stage_dir = folder.path.resolve()
    limits = (corpus.document_memory_gib, corpus.document_cpu_s)
    with closing(DocumentProcess(*limits)) as process:
        planned = list(document_parts.plan_parts(list(contents), partial(process.count_pages, max_pages=corpus.document_pages)))
    parts_dir = stage_dir / document_parts.DIR_NAME
    plan = {document_parts.build_part_path(parts_dir, part, contents): part for part in planned}
    left = [path for path in plan if not path.exists()]
    if not left:
        return list(plan)
    reader = PageReader(corpus, ImageStore(stage_dir / image_store.DIR_NAME))
    costs = ReadingCosts(parts_dir / "costs", _PARTS_AT_FULL_COST * corpus.document_cpu_s)

    def read(row: dict[str, str]) -> dict[str, int]:
        path = Path(row["path"])
        read_document = partial(open_process(*limits).read, root=root, reader=reader, costs=costs)
        num_pages, num_problems = document_parts.write_part(path, plan[path], read_document)
        return {"pages": num_pages, "problems": num_problems}

    rows = [{"path": str(path)} for path in left]
    seeing = find_seeing(stage_dir)
    num_tasks = max(_TASKS_PER_CPU * max(1, seeing.num_cpus), -(-len(rows) // _PARTS_PER_TASK))
    dataset = ray.data.from_items(rows, override_num_blocks=min(len(rows), num_tasks)).map(
        read, num_cpus=1, label_selector=seeing.selector
    )
    set_aside = num_read = 0
    recorder = open_stage_recorder(folder.path)
    with tqdm(desc="reading", unit=" pages", mininterval=0.5 if sys.stderr.isatty() else 5) as progress:
        for num_done, row in enumerate(dataset.iter_rows(), start=len(plan) - len(left) + 1):
            set_aside += row["problems"]
            num_read += row["pages"]
            progress.set_postfix(set_aside=set_aside, refresh=False)
            progress.update(row["pages"])
            recorder.set_progress("parts", num_done, len(plan))
            recorder.set_progress("pages", num_read)
            recorder.set_progress("set_aside", set_aside)
    return list(plan)


def _name_sources(problems: list[Problem], copies: dict[str, Path | None]) -> list[Problem]:
    """The problems with the names of what lies in an object store in place of those of its copies, which are removed."""
    for name, copy in copies.items():
        if is_uri(uri := name.rstrip("/")):
            named = (
                (problem, *(text.replace(str(copy), uri) for text in (problem.place, problem.reason))) for problem in problems
            )
            problems = [replace(problem, place=place, reason=reason) for problem, place, reason in named]
    return problems


def _locate(source: str, copy_name: str, folder: StageFolder) -> Path | None:
    """The place of a source of the user, or of its copy from an object store; None where there is none."""
    if is_uri(source):
        return fetch_files(source, folder.path.resolve() / copy_name)
    return Path(source).expanduser() if source else None


def _read_metadata(corpus: CorpusConfig, path: Path | None, pages: pl.DataFrame) -> tuple[Metadata | None, list[Problem]]:
    if path is None:
        return None, []
    files = pages["file"].unique().to_list()
    metadata, problems = read_document_metadata(path, files, corpus.column_types, corpus.access_column)
    _logger.info(describe(metadata))
    return metadata, problems


def _read_questions(
    corpus: CorpusConfig, path: Path | None, root: Path, folder: StageFolder
) -> tuple[list[Question], list[Problem]]:
    """The questions, whatever they name. They are read before the documents, which are read again where this file is mended."""
    if path is None:
        return [], []
    store = ImageStore(folder.path / question_images.DIR_NAME)
    images = QuestionImages(store, question_images.list_folders(path, root), corpus.page_image_max_pixels)
    found, problems = read_questions(path, corpus.allow_unanswerable, images)
    if not found:
        raise DataError(f"corpus.questions {path}: no question could be read.{name_first(problems)} See docs/documents.md.")
    return found, problems
