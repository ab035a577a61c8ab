"""The sections of the embed stage."""

from dataclasses import dataclass
from pathlib import Path

from drag_ray.config import Sections
from drag_ray.search.config import EmbeddingConfig


@dataclass(frozen=True)
class EmbedSections(Sections):
    """The model where the run has trained none, and its windows."""

    embedding: EmbeddingConfig

    def list_sources(self) -> dict[str, Path]:
        """The model's folder."""
        folder = Path(self.embedding.model).expanduser()
        return {"embedding.model": folder} if self.embedding.model and folder.is_dir() else {}
