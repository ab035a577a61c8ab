"""A learned reranker without a language model: a log-linear model of a few features of question and page.

Much of what training gains on a collection is which kind of page answers which kind of question. That can be learned from the
same training questions in seconds on a CPU, so a trained policy or reranker has to find more than this. The model is a
conditional logit over the pages that a search finds for a question (McFadden, 1974), with the loss of ListNet (Cao et al., 2007).
An evaluation leaves it in a file, with which an endpoint orders pages, alone or together with a model that reads them
(`rerank.features`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from pydantic import Field

from drag_ray.baselines.baseline import Sources
from drag_ray.baselines.dense import FOUND_BY
from drag_ray.baselines.feature_model import FeatureModel
from drag_ray.baselines.question import RawQuestion
from drag_ray.config import BaseConfig
from drag_ray.search.config import RetrievalName

if TYPE_CHECKING:
    from drag_ray.agent.environment import PageSearcher
    from drag_ray.search.searcher import Searcher


_MAX_QUESTIONS = 2_000
"""Training questions to learn from, at most."""


class FeatureConfig(BaseConfig):
    """A reranker of a few features, learned from the training questions."""

    retrieval: RetrievalName = "bm25"
    """search that finds the pages to order: words, the vectors of the index, or both"""
    depth: int = Field(default=20, ge=2)
    """best pages that are ordered, at least as many as are requested"""


@dataclass(frozen=True)
class Features(RawQuestion):
    """Searches for the question and puts what is found in the order of the model."""

    name = "features"
    summary = (
        "the best pages of the question, reordered by a log-linear model of a few features (rank, words of the question and of "
        "its kind in the page, length) that is learned from the training questions; no language model"
    )
    section = ("features", FeatureConfig)

    options: FeatureConfig = field(default_factory=FeatureConfig)
    found_by: RawQuestion = field(default_factory=RawQuestion)
    model: FeatureModel = field(default_factory=FeatureModel)

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """Learned from the run's training questions, in some seconds for thousands of them.

        Raises:
            DataError: there is no training question.
            ConfigError: vectors are to find pages, and the index has none.
        """
        from drag_ray.baselines.feature_training import fit
        from drag_ray.search.searcher import Searcher

        options = sources.options.take(FeatureConfig)
        found_by = FOUND_BY[options.retrieval].prepare(sources)
        questions = sources.draw_questions(_MAX_QUESTIONS)
        searcher = Searcher(sources.index_dir / "search_index")
        index = found_by.open_searcher(searcher, [question.question for question in questions])
        model = fit(questions, index, options.depth, searcher, sources.seed)
        return cls(options, found_by, replace(model, retrieval=options.retrieval))

    def describe(self) -> str:
        """With what was learned from."""
        learned = f"{self.model.num_questions:,} questions" if self.model.weights else "too few questions: the order stays"
        return f"{self.summary} (of {self.options.depth} pages by {self.options.retrieval}, from {learned})"

    def open_searcher(self, searcher: "Searcher", questions: Sequence[str] = ()) -> "PageSearcher":
        """The index, whose pages are put in order. Errors are those of `Dense.open_searcher`."""
        from drag_ray.baselines.page_features import FeatureSearcher

        index = self.found_by.open_searcher(searcher, questions)
        return FeatureSearcher(self.model, index, self.options.depth, searcher)
