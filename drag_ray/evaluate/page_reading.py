"""The reading of pages with their questions by a model that ranks: on all GPUs of the cluster, or on its CPUs."""

import logging
import sys
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from drag_ray.baselines.rerank import RerankedConfig
from drag_ray.errors import ConfigError
from drag_ray.metrics import open_stage_recorder
from drag_ray.search.rerank import PageTexts
from drag_ray.search.searcher import Searcher
from drag_ray.tasks import Step, map_rows
from drag_ray.types import Evidence

if TYPE_CHECKING:
    from drag_ray.engine.pair_writer import PairWriter
    from drag_ray.engine.reranker import Reranker

_logger = logging.getLogger(__name__)

_QUESTIONS_PER_ROW = 16


class AskedPages(NamedTuple):
    """A question, and pages that may answer it."""

    question: str
    pages: tuple[Evidence, ...]


class PairsWriter:
    """Cuts pages and writes their tokens, for a row of Ray Data with several questions.

    Args:
        config: the model that is going to read them.
        search_index: the folder of the index, which has the texts.
    """

    def __init__(self, config: RerankedConfig, search_index: Path) -> None:
        self._config = config
        self._search_index = search_index

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with `pairs` for each question; an error comes back as text, as Ray would bury it."""
        try:
            pairs = [
                self._writer.write(question, self._texts.read(question, [Evidence(**page) for page in pages]))._asdict()
                for question, pages in zip(row["questions"], row["pages"], strict=True)
            ]
        except ConfigError as error:
            return {"start": row["start"], "pairs": [], "num_pages": [], "error": str(error)}
        return {"start": row["start"], "pairs": pairs, "num_pages": [len(pages) for pages in row["pages"]], "error": ""}

    @cached_property
    def _writer(self) -> "PairWriter":
        from drag_ray.engine.pair_writer import load_pair_writer
        from drag_ray.engine.reranker_files import find_files

        return load_pair_writer(find_files(self._config))

    @cached_property
    def _texts(self) -> PageTexts:
        return PageTexts(Searcher(self._search_index), self._writer.page_chars)


class PairsReader:
    """Reads what `PairsWriter` has written, with a model that is loaded at once: elsewhere the first row is being written.

    Args:
        config: the model.
    """

    def __init__(self, config: RerankedConfig) -> None:
        from drag_ray.engine.reranker import load_reranker

        self._reranker: Reranker | None = None
        self._error = ""
        try:
            self._reranker = load_reranker(config)
        except ConfigError as error:
            self._error = str(error)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the scores of the pages of each question; an error comes back as text."""
        from drag_ray.engine.pair_writer import Pairs, join_pairs

        if self._reranker is None or row["error"]:
            return {"start": row["start"], "scores": [], "error": row["error"] or self._error}
        num_pages: list[int] = row["num_pages"]
        # Of all questions at once: more texts of like length stand together.
        written = join_pairs([Pairs(**pairs) for pairs in row["pairs"]], num_pages)
        found = self._reranker.read(written, sum(num_pages))
        ends = list(accumulate(num_pages))
        scores = [found[end - number : end] for end, number in zip(ends, num_pages, strict=True)]
        return {"start": row["start"], "scores": scores, "error": ""}


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
    steps = [Step(PairsWriter, (config, search_index)), Step(PairsReader, (config,))]
    scores: list[list[float]] = [[] for _ in asked]
    num_pages = sum(len(one.pages) for one in asked)
    _logger.info(f"rerank: {config.model} reads {num_pages:,} pages for {len(asked):,} questions")
    recorder = open_stage_recorder(stage_dir)
    with tqdm(desc="reading", unit=" questions", total=len(asked), mininterval=0.5 if sys.stderr.isatty() else 5) as progress:
        for row in map_rows(steps, rows, config.device, stage_dir):
            if row["error"]:
                raise ConfigError(row["error"])
            scores[row["start"] : row["start"] + len(row["scores"])] = [list(found) for found in row["scores"]]
            progress.update(len(row["scores"]))
            recorder.set_progress("read_questions", int(progress.n), len(asked))
    return scores
