"""Retrieval for an agent's searches: by the words of an index, by its vectors, or by both, and by the pictures of its pages."""

import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from drag_ray.agent.environment import PageIndex
from drag_ray.engine.models.relevance import EmbedderNote, read_note
from drag_ray.errors import ConfigError
from drag_ray.search import vectors
from drag_ray.search.config import EmbeddingConfig, ImageEmbeddingConfig, RetrievalName
from drag_ray.search.dense import DenseSearcher, HybridSearcher
from drag_ray.search.index import PAGES_NAME, read_fingerprint
from drag_ray.search.page_table import PageTable
from drag_ray.search.searcher import Searcher
from drag_ray.types import Hit

if TYPE_CHECKING:
    import numpy as np

_opening = threading.Lock()
"""A model of pictures is loaded by one call, for which the others wait."""


def find_vectors(index_dir: Path, embed_dir: Path | None, retrieval: str, option: str) -> Path:
    """The folder of the vectors that an index is searched by: those that the stage `embed` has made, or else its own. Raises
    ConfigError where there are none, and they are needed, and SearchIndexError where those of the stage `embed` are of another
    index, and they are needed."""
    vectors_dir = (embed_dir or index_dir) / vectors.DIR_NAME
    if retrieval == "bm25":
        return vectors_dir
    if not vectors.has_vectors(vectors_dir):
        raise ConfigError(
            f"{option} {retrieval!r}: {vectors_dir.parent} has no vectors of its pages. Build it with a model of "
            "sentence-transformers: python jobs/index.py --embedding.model FOLDER, or embed its pages without reading them "
            "again: python jobs/embed.py --embedding.model FOLDER"
        )
    if embed_dir:
        vectors.read_vectors_record(vectors_dir, read_fingerprint(index_dir / "search_index"))
    return vectors_dir


def is_of_trained_model(vectors_dir: Path, index_fingerprint: str) -> bool:
    """True if finetune has trained the model that has made the vectors of an index. Raises what `read_vectors_record` does."""
    record = vectors.read_vectors_record(vectors_dir, index_fingerprint)
    own_model = vectors_dir.parent / vectors.MODEL_DIR_NAME  # a copy of one that was trained
    return own_model.is_dir() or read_note(Path(record.embedding["model"]), EmbedderNote) is not None


def open_page_index(
    searcher: Searcher, retrieval: RetrievalName, vectors_dir: Path, dense_weight: float | None = None
) -> PageIndex:
    """Open the searcher of an index's pages for a way of retrieval. Raises SearchIndexError where the vectors are missing or
    damaged, or of another index or model, and ConfigError where the model is gone."""
    if retrieval == "bm25":
        return searcher
    dense = open_dense(searcher, vectors_dir)
    return dense if retrieval == "dense" else HybridSearcher(searcher, dense, dense_weight=dense_weight)


def open_dense(searcher: Searcher, vectors_dir: Path) -> DenseSearcher:
    """A searcher of vectors, with the model that made them, on the CPUs of this machine. Raises what `open_page_index` does."""
    from drag_ray.engine.encoders.embedding import Embedder  # PyTorch takes seconds to import

    pages = vectors.PageVectors(vectors_dir, searcher.record.fingerprint)
    config, own_model = EmbeddingConfig(**pages.record.embedding), vectors_dir.parent / vectors.MODEL_DIR_NAME
    if own_model.is_dir():  # wherever the run was when they were made
        config = config.model_copy(update={"model": str(own_model)})
    return DenseSearcher(searcher, pages, Embedder(config).embed_queries)


class PictureIndex:
    """The vectors of the pictures of an index, with the model that made them. Safe to share between threads. Raises
    SearchIndexError where the vectors are damaged, or of another index or model, and ConfigError where the model is gone."""

    def __init__(self, index_dir: Path) -> None:
        from drag_ray.engine.encoders.embedding import ImageEmbedder

        search_dir = index_dir / "search_index"
        self._vectors = vectors.PageVectors(index_dir / vectors.IMAGES_DIR_NAME, read_fingerprint(search_dir))
        self._pages = PageTable(search_dir / PAGES_NAME)
        self.embedder = ImageEmbedder(ImageEmbeddingConfig(**self._vectors.record.embedding))
        self._vectors.check_model(self.embedder.embed_texts([vectors.PROBE])[0])

    def rank(self, vector: "np.ndarray", num_pages: int, shown_rows: "np.ndarray | None" = None) -> list[Hit]:
        """The pages whose pictures are nearest to a vector, the nearest first, among those that may be shown."""
        found = self._vectors.rank(vector, num_pages, shown_rows)
        return [Hit(*self._pages.key(row), rank, score) for rank, (score, row) in enumerate(found, start=1)]


@lru_cache(maxsize=2)  # an endpoint may have an old one and a new one
def _load_index(index_dir: Path, stamp: tuple[int, int, int]) -> PictureIndex:
    return PictureIndex(index_dir)


def open_picture_index(index_dir: Path) -> PictureIndex:
    """The vectors of an index stage, opened once a process. Raises what `PictureIndex` does."""
    folder = index_dir.stat()  # another index may have taken the place of one, and the number of its folder
    with _opening:
        return _load_index(index_dir, (folder.st_dev, folder.st_ino, folder.st_mtime_ns))
