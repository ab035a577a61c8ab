"""Reranking: the best pages of another search for the question, in the order of a model that reads question and page together."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from drag_ray.baselines.baseline import Sources
from drag_ray.baselines.dense import FOUND_BY, Dense
from drag_ray.baselines.feature_model import FeatureModel
from drag_ray.baselines.question import RawQuestion
from drag_ray.errors import ConfigError
from drag_ray.search.config import Factors, RerankConfig, RetrievalName
from drag_ray.storage.object_store import NameOrUri

if TYPE_CHECKING:
    from drag_ray.agent.environment import PageIndex
    from drag_ray.search.page_reranker import ScoreHits
    from drag_ray.search.searcher import Searcher

_logger = logging.getLogger(__name__)


class RerankedConfig(RerankConfig):
    """A model that orders anew what the question finds."""

    device: Literal["auto", "cpu", "gpu"] = "auto"
    """device of the model, after the engines have finished: the cluster's GPUs or its CPUs; auto takes GPUs if there are any"""
    retrieval: RetrievalName = "bm25"
    """search that finds the pages to read; hybrid fuses the rankings by words and vectors"""
    start: NameOrUri = ""
    """embedding model that the reranker was trained from, to show what training brought: the report compares the reranker with
    the order that its vectors give the same pages of 50 questions. Empty compares with none"""


def choose_weight(options: RerankConfig, features: FeatureModel | None) -> float | Factors:
    """The weight of a model's scores: as it is set, as it was learned beside features, or all."""
    if options.weight is not None:
        return options.weight
    return 1.0 if features is None or features.with_model is None else features.with_model


@dataclass(frozen=True)
class Rerank(RawQuestion):
    """Searches for the question; what is found is put in order after all rollouts (`evaluate.reranked_policies`)."""

    name = "rerank"
    summary = (
        "the best pages of the question, reordered by a model that reads question and page together; for every policy of one "
        "turn also its pages as POLICY+rerank; with the baseline `features`, combined with their scores"
    )
    section = ("rerank", RerankedConfig)

    options: RerankedConfig = field(default_factory=RerankedConfig)
    found_by: RawQuestion = field(default_factory=RawQuestion)
    features: FeatureModel | None = None
    """of the baseline `features`, where it stands beside and has learned something"""

    @property
    def weight(self) -> float | Factors:
        """That of the model beside features, or the search: as it is set, as it was learned, or all."""
        return choose_weight(self.options, self.features)

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the run's options, and the reranker that it has trained where they name no model. Raises ConfigError: there is no
        model, or none that ranks, or they name a search by vectors, of which the index has none, or a start that makes none."""
        options = sources.options.take(RerankedConfig)
        if not options.model and sources.reranker:
            options = options.model_copy(update={"model": str(sources.reranker.resolve())})
        if not options.model:
            raise ConfigError(
                f"evaluate.baselines {cls.name!r}: no reranker is set. Give --evaluate.rerank.model FOLDER, or use the run's "
                "own with --reads finetune=reranker/finetune"
            )
        from drag_ray.engine.encoders.reranker_files import describe_other_index, find_files
        from drag_ray.engine.models.model_folder import locate_model

        option = "evaluate.rerank.start"
        if options.start and not (locate_model(options.start, option) / "modules.json").is_file():
            raise ConfigError(
                f"{option} {options.start!r}: no modules.json there, so it makes no vectors. Name an embedding model of "
                "sentence-transformers, or leave the option out."
            )
        if doubt := describe_other_index(find_files(options), sources.index_dir / "search_index"):
            _logger.warning(doubt)
        return cls(options, FOUND_BY[options.retrieval].prepare(sources))

    def describe(self) -> str:
        """With the model, what it reads, and what counts beside its scores."""
        other = "features" if self.features else "the search"
        match self.weight:
            case Factors(features, model):
                beside = f", its scores times {model:.2f} added to those of features times {features:.2f}"
            case weight:
                beside = f", {other} counting {1 - weight:g}" if weight < 1 else ""
        return f"{self.summary} ({self.options.model}, of {self.options.depth} pages by {self.options.retrieval}{beside})"

    def open_features(self, searcher: "Searcher") -> "ScoreHits | None":
        """The scores of pages by features; None where only the model, or the search beside it, counts."""
        from drag_ray.baselines.page_features import FeatureScorer

        return FeatureScorer(self.features, searcher) if self.features and self.weight != 1 else None

    def open_searcher(self, searcher: "Searcher", questions: Sequence[str] = ()) -> "PageIndex":
        """The finder of the pages that are ordered.

        Raises:
            SearchIndexError: vectors that it needs are damaged, or of another index or model.
            ConfigError: their model is gone.
        """
        return self.found_by.open_searcher(searcher, questions) if isinstance(self.found_by, Dense) else searcher
