"""The reading of pages with their questions by a model that ranks: on all GPUs of the cluster, or on its CPUs."""

import logging
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from drag_ray.baselines.rerank import RerankedConfig
from drag_ray.errors import ConfigError
from drag_ray.metrics import open_stage_recorder
from drag_ray.search.searcher import Searcher
from drag_ray.tasks import map_rows
from drag_ray.types import Evidence

if TYPE_CHECKING:
    from drag_ray.engine.reranker import Reranker

_logger = logging.getLogger(__name__)


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
        return self._reranker.score(asked.question, [self._searcher.text(page) for page in asked.pages])

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """`read` for a row of Ray Data; an error comes back as text, as Ray would bury it."""
        try:
            pages = tuple(Evidence(file, number) for file, number in zip(row["files"], row["numbers"], strict=True))
            return {"place": row["place"], "scores": self.read(AskedPages(row["question"], pages)), "error": ""}
        except ConfigError as error:
            return {"place": row["place"], "scores": [], "error": str(error)}

    @cached_property
    def _reranker(self) -> "Reranker":
        from drag_ray.engine.reranker import load_reranker

        return load_reranker(self._config)

    @cached_property
    def _searcher(self) -> Searcher:
        return Searcher(self._search_index)


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
            **{"place": place, "question": one.question},
            **{"files": [page.file for page in one.pages], "numbers": [page.page_number for page in one.pages]},
        }
        for place, one in enumerate(asked)
        if one.pages
    ]
    scores: list[list[float]] = [[] for _ in asked]
    if not rows:
        return scores
    num_pages = sum(len(one.pages) for one in asked)
    _logger.info(f"rerank: {config.model} reads {num_pages:,} pages for {len(rows):,} questions")
    recorder = open_stage_recorder(stage_dir)
    with tqdm(desc="reading", unit=" questions", total=len(rows), mininterval=0.5 if sys.stderr.isatty() else 5) as progress:
        for row in map_rows(PageReader, (config, search_index), rows, config.device, stage_dir):
            if row["error"]:
                raise ConfigError(row["error"])
            scores[row["place"]] = list(row["scores"])
            progress.update()
            recorder.set_progress("read_questions", int(progress.n), len(rows))
    return scores
