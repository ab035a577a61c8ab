"""The index stage: documents -> pages -> search index, and questions with their splits."""

import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import ray
import ray.data
from tqdm import tqdm

from drag_ray import artifacts, schemas
from drag_ray.corpus import page_images, parts
from drag_ray.corpus.config import MANUALS, CorpusConfig
from drag_ray.corpus.documents import list_documents
from drag_ray.corpus.manuals import QUESTIONS_NAME, build_manuals
from drag_ray.corpus.near_duplicates import count_near_duplicates, find_near_duplicates, list_evidence, write_near_duplicates
from drag_ray.corpus.page_images import PageImages
from drag_ray.corpus.page_reader import PageReader
from drag_ray.corpus.problems import Problem, count_problems, name_first
from drag_ray.corpus.questions import check_evidence, draw_questions, read_questions
from drag_ray.corpus.split import split_questions
from drag_ray.errors import ConfigError, DataError
from drag_ray.index.config import IndexSections
from drag_ray.inputs import Inputs
from drag_ray.search.index import build_index
from drag_ray.stage_folder import StageFolder
from drag_ray.types import Question

# A task costs Ray Data some 50 ms, so small collections get few for each core, and large ones one for some parts.
_TASKS_PER_CPU = 8
_PARTS_PER_TASK = 8


def run(sections: IndexSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Read the documents on all workers, build the index, and prepare the questions.

    Writes `pages.parquet`, `search_index/`, `questions.parquet`, `near_duplicates.parquet` (among their evidence pages),
    `problems.jsonl` (what was set aside and why), with `corpus.page_images` also `page_images/`, and for the embedded corpus
    `documents/`. The paths of the documents and
    of the run must mean the same to the driver and to every worker.

    Returns:
        Counts: documents, pages, pages_by_ocr, pages_without_text, questions, train, test, near_duplicate_pages (evidence
        pages with a near-duplicate), set_aside, and of what kinds.

    Raises:
        ConfigError: the options contradict each other.
        DataError: no page, or no question where questions are asked for, could be read.
    """
    corpus = sections.corpus
    _check(corpus)
    root = _prepare_documents(corpus, folder)
    questions_path = _locate_questions(corpus, root)
    documents, problems = list_documents(root, questions_path)
    part_paths = _read_documents(documents, root, corpus, folder)
    pages, page_problems = parts.merge_parts(part_paths, corpus.limit_pages)
    if not pages.num_rows:
        first = name_first(page_problems)
        raise DataError(f"corpus.documents {root}: {len(documents)} documents, but no page could be read.{first}")
    drawn, question_problems = _draw_questions(corpus, questions_path, pages)
    near_duplicates = find_near_duplicates(pages, list_evidence(drawn))
    questions, overlaps = split_questions(drawn, corpus.test_fraction, corpus.seed, corpus.split_by, near_duplicates)
    problems += page_problems + question_problems + overlaps
    artifacts.write_parquet(folder.path / "pages.parquet", pages)
    artifacts.write_parquet(folder.path / "questions.parquet", schemas.to_table(questions, schemas.QUESTIONS))
    write_near_duplicates(folder.path, near_duplicates)
    artifacts.write_jsonl(folder.path / "problems.jsonl", [asdict(problem) for problem in problems])
    build_index(folder.path / "pages.parquet", folder.path / "search_index", sections.search)
    shutil.rmtree(folder.path / parts.DIR_NAME)  # until here a stage that is started again goes on with its parts
    counts = {"documents": len(documents), **_count(pages, questions)}
    return {**counts, "near_duplicate_pages": count_near_duplicates(near_duplicates), **count_problems(problems)}


def _check(corpus: CorpusConfig) -> None:
    if corpus.questions == MANUALS and corpus.documents != MANUALS:
        raise ConfigError(
            f"corpus.questions is {MANUALS!r}, but corpus.documents is {corpus.documents!r}. "
            "Name the file with the questions about these documents, or leave corpus.questions empty."
        )


def _count(pages: pa.Table, questions: list[Question]) -> dict[str, int]:
    texts = pl.DataFrame(pages.select(["text", "text_source"]))
    return {
        "pages": pages.num_rows,
        "pages_by_ocr": int((texts["text_source"] == "ocr").sum()),
        "pages_without_text": int((texts["text"] == "").sum()),
        "questions": len(questions),
        "train": sum(question.split == "train" for question in questions),
        "test": sum(question.split == "test" for question in questions),
    }


def _prepare_documents(corpus: CorpusConfig, folder: StageFolder) -> Path:
    if corpus.documents != MANUALS:
        return Path(corpus.documents).expanduser().resolve()
    root = folder.path.resolve() / "documents"
    # The questions are written last, so a resumed stage can tell that the manuals are whole.
    if not (root / QUESTIONS_NAME).exists():
        print(f"building the manuals of {', '.join(corpus.manual_packages)}", flush=True)
        build_manuals(root, corpus.manual_packages, corpus.limit_pages)
    return root


def _read_documents(documents: list[Path], root: Path, corpus: CorpusConfig, folder: StageFolder) -> list[Path]:
    """The files of the parts of all documents, in the documents' order; only parts without a file are read."""
    ray.data.DataContext.get_current().enable_progress_bars = False
    stage_dir = folder.path.resolve()
    plan = {parts.build_part_path(stage_dir / parts.DIR_NAME, part): part for part in parts.plan_parts(documents)}
    left = [path for path in plan if not path.exists()]
    if not left:
        return list(plan)
    parts.forget_attempts(stage_dir / parts.DIR_NAME)
    reader = PageReader(corpus, PageImages(stage_dir / page_images.DIR_NAME))

    def read(row: dict[str, str]) -> dict[str, int]:
        path = Path(row["path"])
        num_pages, num_problems = parts.write_part(path, plan[path], root, reader)
        return {"pages": num_pages, "problems": num_problems}

    rows = [{"path": str(path)} for path in left]
    num_tasks = max(_TASKS_PER_CPU * int(ray.cluster_resources().get("CPU", 1)), -(-len(rows) // _PARTS_PER_TASK))
    dataset = ray.data.from_items(rows, override_num_blocks=min(len(rows), num_tasks)).map(read, num_cpus=1)
    set_aside = 0
    with tqdm(desc="reading", unit=" pages", mininterval=0.5 if sys.stderr.isatty() else 5) as progress:
        for row in dataset.iter_rows():
            set_aside += row["problems"]
            progress.set_postfix(set_aside=set_aside, refresh=False)
            progress.update(row["pages"])
    return list(plan)


def _locate_questions(corpus: CorpusConfig, root: Path) -> Path | None:
    if not corpus.questions:
        return None
    return root / QUESTIONS_NAME if corpus.questions == MANUALS else Path(corpus.questions).expanduser()


def _draw_questions(corpus: CorpusConfig, path: Path | None, pages: pa.Table) -> tuple[list[Question], list[Problem]]:
    if path is None:
        return [], []
    found, problems = read_questions(path, corpus.allow_unanswerable)
    keys = set(zip(pages["file"].to_pylist(), pages["page_number"].to_pylist(), strict=True))
    kept, lost = check_evidence(found, keys)
    problems += lost
    if not kept:
        raise DataError(
            f"corpus.questions {path}: no question with an evidence page in the corpus.{name_first(problems)} "
            "The questions must name files as the pages do."
        )
    return draw_questions(kept, corpus.limit_questions, corpus.seed), problems
