"""The sections of the embed stage."""

from dataclasses import dataclass
from pathlib import Path

from drag_ray.config import Sections
from drag_ray.search.config import EmbeddingConfig
from drag_ray.storage.object_store import is_uri


@dataclass(frozen=True)
class EmbedSections(Sections):
    """The model where the run has trained none, and its windows."""

    embedding: EmbeddingConfig

    def list_sources(self) -> dict[str, Path | str]:
        """The model's folder, or its place in an object store."""
        model = self.embedding.model
        folder = Path(model).expanduser()
        if is_uri(model):
            return {"embedding.model": model}
        return {"embedding.model": folder} if model and folder.is_dir() else {}
