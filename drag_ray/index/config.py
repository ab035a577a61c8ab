"""What the index stage receives."""

from dataclasses import dataclass

from drag_ray.corpus.config import CorpusConfig
from drag_ray.search.config import SearchConfig


@dataclass(frozen=True)
class IndexSections:
    """The documents and questions, and how they are searched."""

    corpus: CorpusConfig
    search: SearchConfig
