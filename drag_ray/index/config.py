"""What the index stage receives."""

from dataclasses import dataclass
from pathlib import Path

from drag_ray.config import Sections
from drag_ray.corpus.config import MANUALS, CorpusConfig
from drag_ray.errors import ConfigError
from drag_ray.search.config import SearchConfig


@dataclass(frozen=True)
class IndexSections(Sections):
    """The documents and questions, and how they are searched."""

    corpus: CorpusConfig
    search: SearchConfig

    def list_sources(self) -> dict[str, Path]:
        """The documents and the questions, where they are not made from installed packages.

        Raises:
            ConfigError: there are none where the options say.
        """
        named = {"documents": self.corpus.documents, "questions": self.corpus.questions}
        sources = {name: Path(source).expanduser() for name, source in named.items() if source not in ("", MANUALS)}
        for name, path in sources.items():
            if not path.exists():
                raise ConfigError(f"corpus.{name} {named[name]!r}: no such file or folder.")
        return sources
