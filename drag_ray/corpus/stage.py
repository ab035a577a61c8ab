"""The index stage: documents -> pages -> search index, and questions with their splits."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import ray
import ray.data
from tqdm import tqdm

from drag_ray import artifacts, schemas
from drag_ray.artifacts import StageFolder
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.documents import list_documents, read_document
from drag_ray.corpus.manuals import QUESTIONS_NAME, build_manuals
from drag_ray.corpus.pages import merge_pages, to_page_table
from drag_ray.corpus.questions import check_evidence, draw_questions, read_questions
from drag_ray.corpus.records import Problem
from drag_ray.corpus.split import assign_splits
from drag_ray.errors import ConfigError, DataError
from drag_ray.search.index import build_index
from drag_ray.types import Question

MANUALS = "manuals"
_ROWS = pl.Schema(
    {
        "file": pl.String,
        "page_number": pl.Int32,
        "total_pages": pl.Int32,
        "text": pl.String,
        "text_source": pl.String,
        "image": pl.String,
        "source": pl.String,
        "reason": pl.String,
    }
)
_MIN_BLOCKS = 64
_BLOCKS_PER_CPU = 4


def run(config: Any, folder: StageFolder) -> dict[str, Any]:
    """Read the documents on all workers, build the index, and prepare the questions.

    Writes `pages.parquet`, `search_index/`, `questions.parquet`, `problems.jsonl` (what was set aside and why) and,
    for the embedded corpus, `documents/`. The documents' path must mean the same to the driver and to every worker.

    Returns:
        Counts: documents, pages, pages_without_text, questions, train, test, set_aside.

    Raises:
        ConfigError: the options contradict each other.
        DataError: no page, or no question where questions are asked for, could be read.
    """
    corpus: CorpusConfig = config.corpus
    if corpus.questions == MANUALS and corpus.documents != MANUALS:
        raise ConfigError(
            f"corpus.questions is {MANUALS!r}, but corpus.documents is {corpus.documents!r}. "
            "Name the file with the questions about these documents, or leave corpus.questions empty."
        )
    root = _prepare_documents(corpus, folder)
    documents = list_documents(root)
    pages, problems = _read_documents(documents, root)
    if corpus.limit_pages:
        pages = pages.head(corpus.limit_pages)
    if pages.is_empty():
        first = f" First problem: {problems[0].place}: {problems[0].reason}" if problems else ""
        raise DataError(f"corpus.documents {root}: {len(documents)} documents, but no page could be read.{first}")
    questions, question_problems = _prepare_questions(corpus, root, pages)
    problems += question_problems
    artifacts.write_parquet(folder.path / "pages.parquet", to_page_table(pages))
    artifacts.write_parquet(folder.path / "questions.parquet", schemas.to_table(questions, schemas.QUESTIONS))
    artifacts.write_jsonl(folder.path / "problems.jsonl", [asdict(problem) for problem in problems])
    build_index(folder.path / "pages.parquet", folder.path / "search_index", config.search)
    return {
        "documents": len(documents),
        "pages": pages.height,
        "pages_without_text": int((pages["text"] == "").sum()),
        "questions": len(questions),
        "train": sum(question.split == "train" for question in questions),
        "test": sum(question.split == "test" for question in questions),
        "set_aside": len(problems),
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


def _read_documents(documents: list[Path], root: Path) -> tuple[pl.DataFrame, list[Problem]]:
    """All pages as one sorted table, and what was set aside, in the documents' order."""
    ray.data.DataContext.get_current().enable_progress_bars = False

    def read(row: dict[str, str]) -> list[dict[str, Any]]:
        pages, problems = read_document(Path(row["source"]), root)
        blank = dict.fromkeys(["file", "text", "text_source", "image"], "") | {"page_number": 0, "total_pages": 0}
        rows = [{**schemas.to_row(page), **row, "reason": ""} for page in pages]
        return rows + [{**blank, "source": problem.place, "reason": problem.reason} for problem in problems]

    sources = [{"source": str(path)} for path in documents]
    num_blocks = min(len(sources), max(_MIN_BLOCKS, _BLOCKS_PER_CPU * int(ray.cluster_resources().get("CPU", 1))))
    dataset = ray.data.from_items(sources, override_num_blocks=num_blocks).flat_map(read, num_cpus=1)
    frames = [pl.DataFrame(schema=_ROWS)]
    problems: list[Problem] = []
    with tqdm(desc="reading", unit=" pages", mininterval=0.5 if sys.stderr.isatty() else 5) as progress:
        for batch in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
            rows = pl.DataFrame(batch).cast(_ROWS).select(_ROWS.names())
            set_aside = rows.filter(pl.col("reason") != "")
            problems += [Problem(*row) for row in set_aside.select("source", "reason").iter_rows()]
            frames.append(rows.filter(pl.col("reason") == ""))
            progress.set_postfix(set_aside=len(problems), refresh=False)
            progress.update(frames[-1].height)
    pages, repeated = merge_pages(pl.concat(frames))
    return pages, sorted(problems, key=lambda problem: problem.place) + repeated


def _prepare_questions(corpus: CorpusConfig, root: Path, pages: pl.DataFrame) -> tuple[list[Question], list[Problem]]:
    if not corpus.questions:
        return [], []
    path = root / QUESTIONS_NAME if corpus.questions == MANUALS else Path(corpus.questions).expanduser()
    found, problems = read_questions(path)
    keys = set(pages.select("file", "page_number").iter_rows())
    kept, lost = check_evidence(found, keys)
    problems += lost
    if not kept:
        first = f" First problem: {problems[0].place}: {problems[0].reason}." if problems else ""
        raise DataError(
            f"corpus.questions {path}: no question with an evidence page in the corpus.{first} "
            "The questions must name files as the pages do."
        )
    drawn = draw_questions(kept, corpus.limit_questions, corpus.seed)
    return assign_splits(drawn, corpus.test_fraction, corpus.seed, corpus.split_by), problems
