"""The sections of the index stage."""

from dataclasses import dataclass, field
from pathlib import Path

from drag_ray.config import Sections
from drag_ray.corpus.config import COMMANDS, CorpusConfig
from drag_ray.errors import ConfigError, DataError
from drag_ray.removed import MANUALS_INSTEAD
from drag_ray.search.config import EmbeddingConfig, ImageEmbeddingConfig, SearchConfig
from drag_ray.storage.object_store import is_uri

READERS = ("lxml", "markdown-it-py", "pillow", "pypdfium2", "onnxruntime", "rapidocr")
"""Packages that read documents: another version may read them otherwise."""


@dataclass(frozen=True)
class IndexSections(Sections):
    """The documents and questions, and how they are searched: by words and, with embedding models, by vectors."""

    corpus: CorpusConfig
    search: SearchConfig
    embedding: EmbeddingConfig
    image_embedding: ImageEmbeddingConfig = field(default_factory=ImageEmbeddingConfig)

    def list_sources(self) -> dict[str, Path | tuple[Path, ...] | str]:
        """The documents and the questions with their images, where they are not made from installed packages, and the folders of
        embedding models.

        Raises:
            ConfigError: there are none where the options say.
        """
        named = {name: getattr(self.corpus, name) for name in ("documents", "questions", "metadata")}
        models = {"embedding.model": self.embedding.model, "image_embedding.model": self.image_embedding.model}
        given = {name: source for name, source in named.items() if source not in ("", COMMANDS)}
        stored: dict[str, Path | tuple[Path, ...] | str] = {
            name: source for name, source in (given | models).items() if is_uri(source)
        }
        sources = {name: Path(source).expanduser() for name, source in given.items() if name not in stored}
        for name, path in sources.items():
            if not path.exists():
                instead = f" The manuals are no part of the package. {MANUALS_INSTEAD}" if named[name] == "manuals" else ""
                raise ConfigError(f"corpus.{name} {named[name]!r}: no such file or folder.{instead}")
        images = self._list_question_images(sources.get("questions"))
        folders = {option: Path(model).expanduser() for option, model in models.items() if model}
        return (
            stored
            | sources
            | ({"images of questions": images} if images else {})
            | {option: folder for option, folder in folders.items() if folder.is_dir()}
        )

    def _list_question_images(self, questions_path: Path | None) -> tuple[Path, ...]:
        """Those that lie in files, which may be anywhere beside the questions."""
        if questions_path is None:
            return ()
        from drag_ray.corpus.question_images import list_files, list_folders

        try:
            return tuple(list_files(questions_path, list_folders(questions_path, Path(self.corpus.documents).expanduser())))
        except DataError:  # which the stage says
            return ()
