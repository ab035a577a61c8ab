"""What the index stage receives."""

from dataclasses import dataclass
from pathlib import Path

from drag_ray.config import Sections
from drag_ray.corpus.config import EMBEDDED, CorpusConfig
from drag_ray.errors import ConfigError
from drag_ray.search.config import EmbeddingConfig, SearchConfig


@dataclass(frozen=True)
class IndexSections(Sections):
    """The documents and questions, and how they are searched: by words and, with an embedding model, by vectors."""

    corpus: CorpusConfig
    search: SearchConfig
    embedding: EmbeddingConfig

    def list_sources(self) -> dict[str, Path]:
        """The documents and the questions, where they are not made from installed packages, and the embedding model's folder.

        Raises:
            ConfigError: there are none where the options say.
        """
        named = {"documents": self.corpus.documents, "questions": self.corpus.questions}
        sources = {name: Path(source).expanduser() for name, source in named.items() if source not in ("", *EMBEDDED)}
        for name, path in sources.items():
            if not path.exists():
                raise ConfigError(f"corpus.{name} {named[name]!r}: no such file or folder.")
        model_dir = Path(self.embedding.model).expanduser()
        return sources | ({"embedding.model": model_dir} if self.embedding.model and model_dir.is_dir() else {})
