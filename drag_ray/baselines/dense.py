"""Dense retrieval: the question, by the vectors that an embedding model has made of the pages and makes of the question; and
hybrid, what BM25 and the vectors find, fused by reciprocal rank or by scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from drag_ray.baselines.baseline import Sources
from drag_ray.baselines.question import RawQuestion
from drag_ray.search.config import RetrievalName

if TYPE_CHECKING:
    from drag_ray.agent.environment import PageIndex
    from drag_ray.search.dense import DenseSearcher, HybridSearcher
    from drag_ray.search.searcher import Searcher


@dataclass(frozen=True)
class Dense(RawQuestion):
    """Searches for the question by the vectors in the folder `vectors_dir`."""

    name = "dense"
    summary = "the question, word for word, by the vectors of an embedding model instead of by words"

    takes_own_of_index: ClassVar[bool] = False
    """by the vectors that the index was built with, though the stage `embed` has made others"""

    vectors_dir: Path | None = None

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the vectors of the run."""
        return cls(cls.find_vectors(sources))

    @classmethod
    def find_vectors(cls, sources: Sources) -> Path:
        """The vectors of the stage `embed`, where the run has them, or those of the index. Errors are those of
        `agent.retrieval.find_vectors`."""
        from drag_ray.agent.retrieval import find_vectors

        embed_dir = None if cls.takes_own_of_index else sources.embed_dir
        return find_vectors(sources.index_dir, embed_dir, cls.name, "evaluate.baselines")

    def open_searcher(self, searcher: "Searcher", questions: Sequence[str] = ()) -> "PageIndex":
        """The vectors, and the model that made them."""
        return self.open_dense(searcher, questions)

    def open_dense(self, searcher: "Searcher", questions: Sequence[str]) -> "DenseSearcher":
        """A searcher that has embedded the questions, on this machine's CPUs.

        Raises:
            SearchIndexError: the vectors are damaged, or of another index or model.
            ConfigError: the model is gone.
        """
        from drag_ray.agent.retrieval import open_dense

        assert self.vectors_dir, f"{self.name} needs vectors"
        dense = open_dense(searcher, self.vectors_dir)
        dense.prepare(questions)
        return dense


class IndexDense(Dense):
    """The same by the vectors that the index was built with."""

    name = "index_dense"
    summary = "dense by the vectors that the index was built with, where the stage embed has made others"
    takes_own_of_index = True


@dataclass(frozen=True)
class Hybrid(Dense):
    """Searches for the question by words and by vectors, and fuses the two by rank, or with agent.dense_weight by score."""

    name = "hybrid"
    summary = (
        "the question, searched by words and by the vectors of an embedding model, fused by reciprocal rank; for every policy "
        "of one turn also its query as POLICY+hybrid, and for baselines that search for weighted terms their pages fused with "
        "the vectors of the question"
    )

    dense_weight: float | None = None

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the run's vectors, and the weight that its agent gives them."""
        return cls(cls.find_vectors(sources), sources.dense_weight)

    def open_searcher(self, searcher: "Searcher", questions: Sequence[str] = ()) -> "HybridSearcher":
        """The index and its vectors, with the model that made them."""
        from drag_ray.search.dense import HybridSearcher

        return HybridSearcher(searcher, self.open_dense(searcher, questions), dense_weight=self.dense_weight)


class IndexHybrid(Hybrid):
    """The same by the vectors that the index was built with."""

    name = "index_hybrid"
    summary = "the question as hybrid finds pages for it, by the vectors that the index was built with, as index_dense"
    takes_own_of_index = True


FOUND_BY: dict[RetrievalName, type[RawQuestion]] = {"bm25": RawQuestion, "dense": Dense, "hybrid": Hybrid}
"""The search for the question itself by each retrieval, whose pages another baseline puts in order."""
