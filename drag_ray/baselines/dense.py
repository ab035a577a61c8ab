"""Dense retrieval: the question, by the vectors that an embedding model has made of the pages and makes of the question."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from drag_ray.baselines.baseline import Sources
from drag_ray.baselines.question import RawQuestion

if TYPE_CHECKING:
    from drag_ray.agent.environment import PageIndex
    from drag_ray.search.dense import DenseSearcher
    from drag_ray.search.searcher import Searcher


@dataclass(frozen=True)
class Dense(RawQuestion):
    """Searches for the question by the vectors in the folder `vectors_dir`."""

    name = "dense"
    summary = "the question, word for word, by the vectors of an embedding model instead of by words"

    vectors_dir: Path | None = None

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the vectors of the run's index."""
        return cls(cls.find_vectors(sources.index_dir))

    @classmethod
    def find_vectors(cls, index_dir: Path) -> Path:
        """The vectors of an index stage.

        Raises:
            ConfigError: it has made none.
        """
        from drag_ray.agent.retrieval import require_vectors
        from drag_ray.search import vectors

        require_vectors(index_dir, cls.name, "evaluate.baselines")
        return index_dir / vectors.DIR_NAME

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
