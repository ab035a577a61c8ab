"""Reranking: the best pages of another search for the question, in the order of a model that reads question and page together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from drag_ray.baselines.baseline import Sources
from drag_ray.baselines.dense import Dense
from drag_ray.baselines.hybrid import Hybrid
from drag_ray.baselines.question import RawQuestion
from drag_ray.errors import ConfigError
from drag_ray.search.config import RerankConfig, RetrievalName

if TYPE_CHECKING:
    from drag_ray.agent.environment import PageIndex, PageSearcher
    from drag_ray.search.rerank import Score
    from drag_ray.search.searcher import Searcher

_FOUND_BY: dict[RetrievalName, type[RawQuestion]] = {"bm25": RawQuestion, "dense": Dense, "hybrid": Hybrid}


class RerankedConfig(RerankConfig):
    """A model that orders anew what the question finds."""

    retrieval: RetrievalName = "bm25"
    """what finds the pages that it reads; hybrid with the options of evaluate.hybrid"""


@dataclass(frozen=True)
class Rerank(RawQuestion):
    """Searches for the question and orders what is found anew."""

    name = "rerank"
    summary = (
        "the question, word for word, whose best pages a model that reads question and page together puts in a new order; beside "
        "every policy of one turn, as POLICY+rerank, the same of what that searches for"
    )
    section = ("rerank", RerankedConfig)

    options: RerankedConfig = field(default_factory=RerankedConfig)
    found_by: RawQuestion = field(default_factory=RawQuestion)

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the run's options, and the reranker that it has trained where they name no model.

        Raises:
            ConfigError: there is no model, or they name a search by vectors, of which the index has none.
        """
        options = sources.options.take(RerankedConfig)
        if not options.model and sources.reranker:
            options = options.model_copy(update={"model": str(sources.reranker.resolve())})
        if not options.model:
            raise ConfigError(
                f"evaluate.baselines {cls.name!r}: there is no model that ranks. Name one, --evaluate.rerank.model FOLDER, or "
                "one that the run has trained, --reads finetune=reranker/finetune"
            )
        return cls(options, _FOUND_BY[options.retrieval].prepare(sources))

    def describe(self) -> str:
        """With the model, and what it reads."""
        return f"{self.summary} ({self.options.model}, of {self.options.depth} pages by {self.options.retrieval})"

    def open_searcher(self, searcher: "Searcher", questions: Sequence[str] = ()) -> "PageSearcher":
        """The index, with the model.

        Raises:
            SearchIndexError: vectors that it needs are damaged, or of another index or model.
            ConfigError: a model cannot be read.
        """
        from drag_ray.search.rerank import RerankingSearcher

        return RerankingSearcher(self.open_finder(searcher, questions), searcher, self.load_score(), self.options.depth)

    def open_finder(self, searcher: "Searcher", questions: Sequence[str] = ()) -> "PageIndex":
        """What finds the pages that are ordered. Raises what `open_searcher` does."""
        return self.found_by.open_searcher(searcher, questions) if isinstance(self.found_by, Dense) else searcher

    def load_score(self) -> "Score":
        """The model, which scores pages. Those that it has read for a question in this process it does not read again.

        Raises:
            ConfigError: it cannot be read.
        """
        return _load_score(self.options.model_dump_json())


@lru_cache(maxsize=1)
def _load_score(options: str) -> "Score":
    from drag_ray.engine.reranker import load_reranker
    from drag_ray.search.rerank import remember

    return remember(load_reranker(RerankedConfig.model_validate_json(options)).score)
