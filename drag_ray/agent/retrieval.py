"""Retrieval for an agent's searches: by the words of an index, by its vectors, or by both."""

from pathlib import Path

from drag_ray.agent.environment import PageIndex
from drag_ray.errors import ConfigError
from drag_ray.search import vectors
from drag_ray.search.config import EmbeddingConfig, RetrievalName
from drag_ray.search.dense import DenseSearcher
from drag_ray.search.hybrid import HybridSearcher
from drag_ray.search.searcher import Searcher


def open_page_index(
    searcher: Searcher, retrieval: RetrievalName, index_dir: Path, dense_weight: float | None = None
) -> PageIndex:
    """Open the searcher of an index's pages for a way of retrieval.

    Args:
        searcher: of the words, which has the pages.
        index_dir: the folder of the index stage, where its vectors lie.
        dense_weight: of the vectors, where both are searched (agent.dense_weight).

    Raises:
        SearchIndexError: the vectors are missing or damaged, or of another index or model.
        ConfigError: the model is gone.
    """
    if retrieval == "bm25":
        return searcher
    dense = open_dense(searcher, index_dir / vectors.DIR_NAME)
    return dense if retrieval == "dense" else HybridSearcher(searcher, dense, dense_weight=dense_weight)


def open_dense(searcher: Searcher, vectors_dir: Path) -> DenseSearcher:
    """A searcher of vectors, with the model that made them, on the CPUs of this machine. Raises what `open_page_index` does."""
    from drag_ray.engine.encoders.embedding import Embedder  # PyTorch takes seconds to import

    pages = vectors.PageVectors(vectors_dir, searcher.record.fingerprint)
    return DenseSearcher(searcher, pages, Embedder(EmbeddingConfig(**pages.record.embedding)).embed_queries)


def require_vectors(index_dir: Path, retrieval: str, option: str) -> None:
    """ConfigError where an index stage has made no vectors, and what an option says needs them."""
    if retrieval != "bm25" and not vectors.has_vectors(index_dir / vectors.DIR_NAME):
        raise ConfigError(
            f"{option} {retrieval!r}: {index_dir} has no vectors of its pages. Build it with a model of sentence-transformers: "
            "python jobs/index.py --embedding.model FOLDER"
        )
