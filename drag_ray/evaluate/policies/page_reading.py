"""The reading of pages with their questions by a model that ranks: on all GPUs of the cluster, or on its CPUs.

What is read is searched for and written in processes beside the model, which is loaded meanwhile and never waits for all of it.
"""

import logging
import pickle
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from drag_ray.baselines.rerank import RerankedConfig
from drag_ray.cluster.metrics import open_stage_recorder
from drag_ray.cluster.tasks import Step, map_rows
from drag_ray.errors import ConfigError, DragRayError
from drag_ray.evaluate.policies.retriever_rescoring import SearchAsAsked
from drag_ray.search.rerank import PageTexts
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hits, Trajectory

if TYPE_CHECKING:
    from drag_ray.engine.encoders.pair_writer import PairWriter
    from drag_ray.engine.encoders.reranker import Reranker

_logger = logging.getLogger(__name__)

_QUESTIONS_PER_ROW = 16


class AskedQuestion(NamedTuple):
    """A question, and the rollouts that search for it."""

    question: str
    rollouts: tuple[Trajectory, ...]


class ReadPages(NamedTuple):
    """Hits of each rollout of a question, None where it searches for nothing, and the scores of the pages as its answers; more
    is better."""

    hits: list[Hits | None]
    scores: dict[Evidence, float]


def list_pages(hits: Sequence[Hits | None]) -> list[Evidence]:
    """The pages that several searches have found, each once, as they come."""
    return list(dict.fromkeys(hit.page for found in hits if found for hit in found))


class PagesFinder:
    """Searches for what rollouts search for, for a row of Ray Data with several questions.

    Args:
        search: finds the pages that are going to be read.
    """

    def __init__(self, search: SearchAsAsked) -> None:
        self._search = search

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with `hits` of its rollouts and `pages` of each question; an error comes back as text, as Ray would bury it."""
        rollouts: list[tuple[Trajectory, ...]] = pickle.loads(row["rollouts"])
        found = {"start": row["start"], "questions": row["questions"], "hits": b"", "pages": [], "error": ""}
        try:
            hits = [[self._find(rollout) for rollout in of_one] for of_one in rollouts]
        except DragRayError as error:
            return found | {"error": str(error)}
        pages = [[{"file": page.file, "page_number": page.page_number} for page in list_pages(of_one)] for of_one in hits]
        return found | {"hits": pickle.dumps(hits), "pages": pages}

    @cached_property
    def _find(self) -> Callable[[Trajectory], Hits | None]:
        return self._search.open()


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
        """The row with `pairs` for each question; an error comes back as text."""
        written = {"start": row["start"], "hits": row["hits"], "pairs": [], "num_pages": [], "error": row["error"]}
        if row["error"]:
            return written
        try:
            pairs = [
                self._writer.write(question, self._texts.read(question, [Evidence(**page) for page in pages]))._asdict()
                for question, pages in zip(row["questions"], row["pages"], strict=True)
            ]
        except ConfigError as error:
            return written | {"error": str(error)}
        return written | {"pairs": pairs, "num_pages": [len(pages) for pages in row["pages"]]}

    @cached_property
    def _writer(self) -> "PairWriter":
        from drag_ray.engine.encoders.pair_writer import load_pair_writer
        from drag_ray.engine.encoders.reranker_files import find_files

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
        from drag_ray.engine.encoders.reranker import load_reranker

        self._reranker: Reranker | None = None
        self._error = ""
        try:
            self._reranker = load_reranker(config)
        except ConfigError as error:
            self._error = str(error)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the scores of the pages of each question; an error comes back as text."""
        from drag_ray.engine.encoders.pair_writer import Pairs, join_pairs

        if self._reranker is None or row["error"]:
            return {"start": row["start"], "hits": b"", "scores": [], "error": row["error"] or self._error}
        num_pages: list[int] = row["num_pages"]
        # Of all questions at once: more texts of like length stand together.
        written = join_pairs([Pairs(**pairs) for pairs in row["pairs"]], num_pages)
        found = self._reranker.read(written, sum(num_pages))
        ends = list(accumulate(num_pages))
        scores = [found[end - number : end] for end, number in zip(ends, num_pages, strict=True)]
        return {"start": row["start"], "hits": row["hits"], "scores": scores, "error": ""}


def read_pages(asked: Sequence[AskedQuestion], search: SearchAsAsked, config: RerankedConfig, stage_dir: Path) -> list[ReadPages]:
    """Read for each question the pages that its rollouts find, each once.

    Args:
        asked: whose pages are read.
        search: finds them.
        config: the model and where it reads.
        stage_dir: of the stage that reads; the nodes that see it help.

    Raises:
        ConfigError: the model cannot be read, what is searched is damaged, or no node sees the folder.
    """
    rows = [
        {
            "start": start,
            "questions": [one.question for one in some],
            # Of values that Arrow has no types for.
            "rollouts": pickle.dumps([one.rollouts for one in some]),
        }
        for start in range(0, len(asked), _QUESTIONS_PER_ROW)
        for some in [asked[start : start + _QUESTIONS_PER_ROW]]
    ]
    steps = [Step(PagesFinder, (search,)), Step(PairsWriter, (config, search.index_dir)), Step(PairsReader, (config,))]
    read: list[ReadPages] = [ReadPages([], {}) for _ in asked]
    _logger.info(f"rerank: {config.model} reads what is found for {len(asked):,} questions")
    recorder = open_stage_recorder(stage_dir)
    with tqdm(desc="reading", unit=" questions", total=len(asked), mininterval=0.5 if sys.stderr.isatty() else 5) as progress:
        for row in map_rows(steps, rows, config.device, stage_dir):
            if row["error"]:
                raise ConfigError(row["error"])
            for place, (hits, scores) in enumerate(zip(pickle.loads(row["hits"]), row["scores"], strict=True), row["start"]):
                read[place] = ReadPages(hits, dict(zip(list_pages(hits), scores, strict=True)))
            progress.update(len(row["scores"]))
            recorder.set_progress("read_questions", int(progress.n), len(asked))
    num_pages = sum(len(one.scores) for one in read)
    _logger.info(f"rerank: {num_pages:,} pages were read")
    return read
