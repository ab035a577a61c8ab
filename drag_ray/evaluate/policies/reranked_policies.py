"""Policies whose pages are put in order by a model that reads the question with each, as an endpoint does with
`rerank`.

A reranker can put no page first that the search has not found. So beside `rerank`, the question's own pages in a new order,
stands what each policy finds, in its order. The model reads on all GPUs of the cluster, or on its CPUs; what it reads is searched
for and written in processes beside it, so that it never waits for all of it.
"""

import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.rerank import Rerank
from drag_ray.cluster.metrics import show_progress
from drag_ray.cluster.nodes import free_gpus, takes_gpus
from drag_ray.cluster.tasks import ItemStep, Step, map_items, run_task
from drag_ray.evaluate.deployment import Latency
from drag_ray.evaluate.policies.policy import name_beside
from drag_ray.evaluate.policies.retriever_rescoring import SearchAsAsked, rescore_with_retriever
from drag_ray.search.config import EmbeddingConfig
from drag_ray.search.page_reranker import ScoreHits, cut_passage, put_in_order
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hits, Question, Trajectory

if TYPE_CHECKING:
    from drag_ray.engine.encoders.pair_writer import Pairs, PairWriter

_logger = logging.getLogger(__name__)

_QUESTIONS_PER_ITEM = 16
_TIMED = 30
"""Questions that are enough for a median."""
_TIMED_THREADS = 2
_NUM_STARTED = 250
"""Questions that tell whether training brought some points: the vectors of the pages of one take a small model on a CPU half a
second."""
_TIMED_DEPTH = 10
"""Pages that are found where no model reads them."""


class AskedQuestion(NamedTuple):
    """A question, and the rollouts that search for it."""

    question: str
    rollouts: tuple[Trajectory, ...]


class ReadPages(NamedTuple):
    """Hits of each rollout of a question, None where it searches for nothing, their scores by features, None without these, and
    the scores of the pages as its answers by the model; more is better."""

    hits: list[Hits | None]
    features: list[Sequence[float] | None]
    scores: dict[Evidence, float]


class _FoundPages(NamedTuple):
    """Hits of each rollout of a question, their scores by features, and their pages, each once."""

    hits: list[Hits | None]
    features: list[Sequence[float] | None]
    pages: list[Evidence]


def put_pages_in_order(
    trajectories: Mapping[str, Sequence[Trajectory]],
    policies: Sequence[str],
    reranker: Rerank,
    index_dir: Path,
    read_pages: Callable[[Sequence[AskedQuestion], SearchAsAsked], Sequence[ReadPages]],
) -> dict[str, list[Trajectory]]:
    """The trajectories after `rescore_with_retriever`, as `POLICY+rerank`, and those of the baseline `rerank` in the new order.

    Args:
        trajectories: of each policy and baseline, that of `rerank` as its search has found the pages.
        policies: the names of those that a model writes for.
        read_pages: asked once for all pages; each is read once for a question, whichever policies find it.

    Raises:
        ConfigError: a model cannot be read, or vectors that it needs are damaged, or of another index or model.
    """

    def search(rollouts: Sequence[Trajectory]) -> list[Hits | None]:
        places: dict[str, list[int]] = {}
        for place, rollout in enumerate(rollouts):
            places.setdefault(rollout.question, []).append(place)
        asked = [AskedQuestion(question, tuple(rollouts[place] for place in own)) for question, own in places.items()]
        ordered: list[Hits | None] = [None] * len(rollouts)
        found = read_pages(asked, SearchAsAsked(reranker, index_dir, reranker.options.depth))
        for own, read in zip(places.values(), found, strict=True):
            for place, hits, features in zip(own, read.hits, read.features, strict=True):
                ordered[place] = hits and put_in_order(hits, read.scores, rollouts[place].depth, reranker.weight, features)
        return ordered

    name = Rerank.name
    found = rescore_with_retriever(trajectories, [*policies, *([name] if trajectories.get(name) else [])], name, search)
    # The baseline's own pages in the new order are what it is; `rerank+rerank` there is none.
    if ordered := found.pop(name_beside(name, name), None):
        found[name] = ordered
    return found


def read_pages(asked: Sequence[AskedQuestion], search: SearchAsAsked, reranker: Rerank, stage_dir: Path) -> list[ReadPages]:
    """Read for each question the pages that its rollouts find, each once. Raises ConfigError: the model cannot be read, what is
    searched is damaged, or no node sees the folder."""
    from drag_ray.engine.encoders.reranker import PairsReader

    config = reranker.options
    items = [asked[start : start + _QUESTIONS_PER_ITEM] for start in range(0, len(asked), _QUESTIONS_PER_ITEM)]
    steps = [Step(_PagesFinder, (search,)), Step(_PairsWriter, (reranker, search.index_dir)), Step(PairsReader, (config,))]
    read: list[ReadPages] = [ReadPages([], [], {}) for _ in asked]
    _logger.info(f"rerank: {config.model} reads what is found for {len(asked):,} questions")
    with show_progress(stage_dir, "reading", "questions", "read_questions", len(asked)) as advance:
        for place, made in map_items(steps, items, config.device, stage_dir):
            for number, (found, scores) in enumerate(made, start=place * _QUESTIONS_PER_ITEM):
                read[number] = ReadPages(found.hits, found.features, dict(zip(found.pages, scores, strict=True)))
            advance(len(made))
    num_pages = sum(len(one.scores) for one in read)
    _logger.info(f"rerank: {num_pages:,} pages were read")
    return read


def measure_latency(baseline: RawQuestion, index_dir: Path, questions: Sequence[Question]) -> Latency:
    """Time search and reading for one question at a time, on a GPU of the cluster if that is where a model reads, or else on two
    CPUs.

    Args:
        baseline: a reranker, or a search by vectors, prepared.
        questions: the first `_TIMED` are asked, after one that does not count.

    Raises:
        ConfigError: the model cannot be read.
    """
    texts = [question.question for question in questions[: _TIMED + 1]]
    on_gpu = isinstance(baseline, Rerank) and takes_gpus(baseline.options.device)
    return run_task(time_questions, (baseline, index_dir, texts), free_gpus() if on_gpu else 0)


def time_questions(baseline: RawQuestion, index_dir: Path, questions: Sequence[str]) -> Latency:
    """Runs in the task."""
    import torch

    from drag_ray.engine.encoders.reranker import load_page_ranker

    torch.set_num_threads(_TIMED_THREADS)
    searcher = Searcher(index_dir)
    index = baseline.open_searcher(searcher)  # which is not told the questions: to embed one takes time too
    ranker, depth, on_gpu = None, _TIMED_DEPTH, False
    if isinstance(baseline, Rerank):
        options, depth = baseline.options, baseline.options.depth
        ranker = load_page_ranker(options, searcher, baseline.weight, baseline.open_features(searcher))
        on_gpu = torch.cuda.is_available() and options.device != "cpu"
    times: list[float] = []
    for question in questions:
        started = time.perf_counter()
        hits = index.search(question, depth)
        if ranker:
            ranker.rerank(question, hits, depth)
        times.append(time.perf_counter() - started)
    return Latency(
        median_ms=round(statistics.median(times[1:] or times) * 1000, 1),
        num_questions=max(len(times) - 1, 1),
        num_pages=depth if ranker else 0,
        device=torch.cuda.get_device_name() if on_gpu else f"{_TIMED_THREADS} CPU cores",
        gpu_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else 0.0,
    )


def rank_by_start(reranker: Rerank, index_dir: Path, questions: Sequence[Question], depth: int) -> dict[str, int | None]:
    """The ranks, to a depth, of the evidence of the first `_NUM_STARTED` questions, by their ids, where the vectors of the model
    that the reranker was trained from put in order what it reads; none without such a model. Raises ConfigError where that makes
    no vectors."""
    asked = questions[:_NUM_STARTED] if reranker.options.start else ()
    return run_task(order_by_vectors, (reranker, index_dir, asked, depth), 0) if asked else {}


def order_by_vectors(reranker: Rerank, index_dir: Path, questions: Sequence[Question], depth: int) -> dict[str, int | None]:
    """Runs in the task."""
    import torch

    from drag_ray.engine.encoders.embedding import Embedder
    from drag_ray.engine.encoders.reranker_files import find_files

    torch.set_num_threads(_TIMED_THREADS)
    options, searcher, texts = reranker.options, Searcher(index_dir), [question.question for question in questions]
    # Passages are embedded whole, as far as the model reads: windows are those of indexes.
    embedder = Embedder(EmbeddingConfig(model=options.start, window_tokens=32, overlap_tokens=0))
    page_chars = find_files(options).page_chars
    index = reranker.open_searcher(searcher, texts)
    found = [index.search(text, options.depth) for text in texts]
    pages = [cut_passage(searcher, hit, text, page_chars) for text, hits in zip(texts, found, strict=True) for hit in hits]
    vectors = iter(embedder.embed_pages(pages))
    ranks: dict[str, int | None] = {}
    for question, asked, hits in zip(questions, embedder.embed_queries(texts), found, strict=True):
        ordered = put_in_order(hits, {hit.page: float(asked @ next(vectors)) for hit in hits}, depth)
        ranks[question.id] = next((hit.rank for hit in ordered if hit.page in question.evidence), None)
    return ranks


class _PagesFinder(ItemStep):
    """Searches for what rollouts search for."""

    def __init__(self, search: SearchAsAsked) -> None:
        self._search = search

    def make(self, made: Sequence[AskedQuestion]) -> list[tuple[str, list[Hits | None]]]:
        return [(question, [self._find(rollout) for rollout in rollouts]) for question, rollouts in made]

    @cached_property
    def _find(self) -> Callable[[Trajectory], Hits | None]:
        return self._search.open()


class _PairsWriter(ItemStep):
    """Cuts the pages that were found, each once for a question, and writes their tokens."""

    def __init__(self, reranker: Rerank, search_index: Path) -> None:
        self._reranker = reranker
        self._search_index = search_index

    def make(self, made: Sequence[tuple[str, list[Hits | None]]]) -> list[tuple[_FoundPages, "Pairs"]]:
        written: list[tuple[_FoundPages, Pairs]] = []
        for question, found in made:
            features = [self._features(question, hits) if self._features and hits else None for hits in found]
            pages = list_pages(found)
            passages = [cut_passage(self._searcher, page, question, self._writer.page_chars) for page in pages]
            written.append((_FoundPages(found, features, pages), self._writer.write(question, passages)))
        return written

    @cached_property
    def _features(self) -> ScoreHits | None:
        return self._reranker.open_features(self._searcher)

    @cached_property
    def _writer(self) -> "PairWriter":
        from drag_ray.engine.encoders.pair_writer import load_pair_writer
        from drag_ray.engine.encoders.reranker_files import find_files

        return load_pair_writer(find_files(self._reranker.options))

    @cached_property
    def _searcher(self) -> Searcher:
        return Searcher(self._search_index)


def list_pages(hits: Sequence[Hits | None]) -> list[Evidence]:
    """The pages that several searches have found, each once, as they come."""
    return list(dict.fromkeys(hit.page for found in hits if found for hit in found))
