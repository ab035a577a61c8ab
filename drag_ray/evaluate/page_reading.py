"""The reading of pages with their questions by a model that ranks: on all GPUs of the cluster, or on its CPUs."""

import logging
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from drag_ray.baselines.rerank import RerankedConfig
from drag_ray.errors import ConfigError
from drag_ray.metrics import open_stage_recorder
from drag_ray.search.rerank import PageRanker
from drag_ray.search.searcher import Searcher
from drag_ray.tasks import map_rows
from drag_ray.types import Evidence

_logger = logging.getLogger(__name__)

_QUESTIONS_PER_ROW = 16
_THREADS = 4
"""that cut pages and write tokens for one model: so many keep it reading"""


class AskedPages(NamedTuple):
    """A question, and pages that may answer it."""

    question: str
    pages: tuple[Evidence, ...]


class PageReader:
    """Reads in one process, with one model, which is loaded for the first question.

    Args:
        config: the model.
        search_index: the folder of the index, which has the texts.
    """

    def __init__(self, config: RerankedConfig, search_index: Path) -> None:
        self._config = config
        self._search_index = search_index

    def read(self, asked: AskedPages) -> list[float]:
        """How well each page answers the question.

        Raises:
            ConfigError: the model cannot be read.
        """
        return self._ranker.score(asked.question, asked.pages)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """`read` for the questions of a row of Ray Data; an error comes back as text, as Ray would bury it."""
        asked = [
            AskedPages(question, tuple(Evidence(page["file"], page["page_number"]) for page in pages))
            for question, pages in zip(row["questions"], row["pages"], strict=True)
        ]
        try:
            _ = self._ranker  # made by one thread
            with ThreadPoolExecutor(_THREADS) as threads:
                return {"start": row["start"], "scores": list(threads.map(self.read, asked)), "error": ""}
        except ConfigError as error:
            return {"start": row["start"], "scores": [], "error": str(error)}

    @cached_property
    def _ranker(self) -> PageRanker:
        from drag_ray.engine.reranker import load_reranker

        return PageRanker(Searcher(self._search_index), load_reranker(self._config).score, self._config.page_chars)


def read_pages(asked: Sequence[AskedPages], config: RerankedConfig, search_index: Path, stage_dir: Path) -> list[list[float]]:
    """The scores of the pages of each question, in their order.

    Args:
        asked: what is read.
        config: the model and where it reads.
        search_index: the folder of the index.
        stage_dir: of the stage that reads; the nodes that see it help.

    Raises:
        ConfigError: the model cannot be read, or no node sees the folder.
    """
    rows = [
        {
            "start": start,
            "questions": [one.question for one in some],
            "pages": [[{"file": page.file, "page_number": page.page_number} for page in one.pages] for one in some],
        }
        for start in range(0, len(asked), _QUESTIONS_PER_ROW)
        for some in [asked[start : start + _QUESTIONS_PER_ROW]]
    ]
    scores: list[list[float]] = [[] for _ in asked]
    num_pages = sum(len(one.pages) for one in asked)
    _logger.info(f"rerank: {config.model} reads {num_pages:,} pages for {len(asked):,} questions")
    recorder = open_stage_recorder(stage_dir)
    with tqdm(desc="reading", unit=" questions", total=len(asked), mininterval=0.5 if sys.stderr.isatty() else 5) as progress:
        for row in map_rows(PageReader, (config, search_index), rows, config.device, stage_dir):
            if row["error"]:
                raise ConfigError(row["error"])
            scores[row["start"] : row["start"] + len(row["scores"])] = [list(found) for found in row["scores"]]
            progress.update(len(row["scores"]))
            recorder.set_progress("read_questions", int(progress.n), len(asked))
    return scores
