"""The ways in which the endpoint finds pages for what a model wrote: by words, by vectors, by both, and ordered anew."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import PageIndex
from drag_ray.agent.retrieval import PictureIndex, open_dense, open_picture_index
from drag_ray.baselines.feature_model import read_features
from drag_ray.baselines.rerank import choose_weight
from drag_ray.errors import ConfigError, SearchIndexError
from drag_ray.search import vectors
from drag_ray.search.config import RetrievalName
from drag_ray.search.dense import FUSED_DEPTH, DenseSearcher, HybridSearcher, fuse_rankings
from drag_ray.search.page_reranker import PageRanker
from drag_ray.search.searcher import Searcher
from drag_ray.serve.config import ServedRerankConfig
from drag_ray.serve.ingress.limits import RefusalError
from drag_ray.types import Evidence, Hit, Hits, Page

if TYPE_CHECKING:
    from PIL.Image import Image

    from drag_ray.engine.encoders.reranker import Reranker

_Searchers = dict[RetrievalName, DenseSearcher | HybridSearcher]
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Retrieval:
    """Retrieval modes of an index: by words, by `others`, and by `pictures` where it has vectors of them; `default` is the one
    where a request says nothing. A `ranker`, if there is one, orders rankings anew, at least so many pages of each."""

    searcher: Searcher
    others: _Searchers = field(default_factory=_Searchers)
    default: RetrievalName = "bm25"
    ranker: PageRanker | None = None
    rerank_depth: int = 0
    pictures: PictureIndex | None = None

    @property
    def names(self) -> set[RetrievalName]:
        """All modes that there are."""
        return {"bm25", *self.others}

    def restrict(self, searcher: Searcher) -> "Retrieval":
        """The same for a searcher that finds some of the pages alone."""
        return replace(self, searcher=searcher, others={name: index.restrict(searcher) for name, index in self.others.items()})

    def choose_name(self, agent: AgentConfig) -> RetrievalName:
        """The retrieval of an agent where a request names none: as it was trained with, or the default if that was bm25."""
        return self.default if agent.retrieval == "bm25" else agent.retrieval

    def choose(self, name: RetrievalName, dense_weight: float | None = None) -> PageIndex:
        """The index for a retrieval; `dense_weight` is that of its vectors, where it searches by both. Raises RefusalError where
        the index has no vectors."""
        if name not in self.names:
            raise RefusalError(
                400, f"retrieval {name!r}: the index has no vectors, or their model is gone; the endpoint's log says which."
            )
        index = self.others.get(name, self.searcher)
        return index.weigh(dense_weight) if isinstance(index, HybridSearcher) else index

    def search_pictures(self, images: Sequence["Image"], question: str, index: PageIndex, depth: int) -> Hits:
        """The `depth` best pages by what their pictures are like, and by the question in an index where it has a text: rankings
        that are fused by their ranks. Raises SearchIndexError where the index is damaged and ConfigError where the model makes no
        numbers of an image."""
        assert self.pictures, "the index has no vectors of pictures"
        fused_depth = max(depth, FUSED_DEPTH)
        vectors_of_images = [self.pictures.embedder.embed_images([image])[0] for image in images]
        found = [Hits(self.pictures.rank(vector, fused_depth, self.searcher.shown_rows)) for vector in vectors_of_images]
        if question.strip():
            found.append(index.search(question, fused_depth))
        hits = fuse_rankings(found) if len(found) > 1 else found[0]
        return Hits(hits[:depth], any(ranking.is_partial for ranking in found))

    def choose_depth(self, wants_rerank: bool | None, top_k: int) -> int:
        """Pages to order anew for `top_k` of them; 0 where their order is to stay, which without a model is the default. Raises
        RefusalError where there is no model for it."""
        if wants_rerank and self.ranker is None:
            raise RefusalError(
                400, "rerank: nothing ranks here. Start the endpoint with --serve.rerank.model or --serve.rerank.features."
            )
        return 0 if wants_rerank is False or self.ranker is None else max(self.rerank_depth, top_k)

    def rerank(self, question: str, hits: Sequence[Hit]) -> Hits:
        """The same pages in the order of the ranker."""
        assert self.ranker, "nothing ranks"
        return self.ranker.rerank(question, Hits(hits), len(hits))

    def order_by_question(self, index: PageIndex, question: str, depth: int) -> PageIndex:
        """The index, with the best `depth` pages of each search in the model's order."""
        assert self.ranker, "nothing ranks"
        return _QuestionOrder(index, self.ranker, question, depth)


@dataclass(frozen=True, eq=False)
class _QuestionOrder:
    """Finds what an index does, and orders it by a question, whatever was searched for; each page is read once."""

    _index: PageIndex
    _ranker: PageRanker
    _question: str
    _depth: int
    _known: dict[Evidence, float] = field(default_factory=dict[Evidence, float])

    def search(self, text: str, top_k: int) -> Hits:
        """As the index, whose errors are raised."""
        return self._order(self._index.search(text, max(self._depth, top_k)), top_k)

    def search_expanded(self, question: str, addition: str, question_weight: float, top_k: int, words: str = "") -> Hits:
        """As the index, whose errors are raised."""
        return self._order(
            self._index.search_expanded(question, addition, question_weight, max(self._depth, top_k), words), top_k
        )

    def page(self, hit: Hit) -> Page:
        """As the index, whose errors are raised."""
        return self._index.page(hit)

    def _order(self, hits: Hits, top_k: int) -> Hits:
        return self._ranker.rerank(self._question, hits, top_k, self._known)


def open_retrieval(searcher: Searcher, vectors_dir: Path, default: RetrievalName, config: ServedRerankConfig) -> Retrieval:
    """All that an index can be searched by, with models on this machine. Raises SearchIndexError where `default` needs vectors,
    which are damaged, or of another index or model; and ConfigError where a model is gone, or is none."""
    others: _Searchers = {}
    if default != "bm25" or vectors.has_vectors(vectors_dir):
        try:
            dense = open_dense(searcher, vectors_dir)
            others = {"dense": dense, "hybrid": HybridSearcher(searcher, dense)}
        except (ConfigError, SearchIndexError) as error:
            if default != "bm25":
                raise
            _logger.warning("pages are searched by words only: %s", error)
    return Retrieval(searcher, others, default, open_ranker(searcher, config), config.depth, _open_pictures(searcher))


def _open_pictures(searcher: Searcher) -> PictureIndex | None:
    index_dir = searcher.index_dir.parent
    if not vectors.has_vectors(index_dir / vectors.IMAGES_DIR_NAME):
        return None
    try:
        return open_picture_index(index_dir)
    except (ConfigError, SearchIndexError) as error:
        _logger.warning("no pages are found by their pictures: %s", error)
        return None


def open_ranker(searcher: Searcher, config: ServedRerankConfig) -> PageRanker | None:
    """The ranker that an endpoint is given; None where nothing is named. ConfigError where it cannot rank."""
    learned, features = None, None
    if config.features:
        from drag_ray.baselines.page_features import FeatureScorer  # NumPy takes its time

        learned = read_features(config.features)
        features = FeatureScorer(learned, searcher)
    if not config.model:
        return PageRanker(searcher, features=features) if features else None
    reranker = _load_reranker(config)  # pyright: ignore[reportArgumentType] (it is frozen, and so has a hash)
    return PageRanker(searcher, reranker.score, reranker.writer.page_chars, choose_weight(config, learned), features)


@lru_cache(maxsize=1)  # a newer index is searched with the model that is there: two might not fit the memory of a GPU
def _load_reranker(config: ServedRerankConfig) -> "Reranker":
    from drag_ray.engine.encoders.reranker import load_reranker

    return load_reranker(config)
