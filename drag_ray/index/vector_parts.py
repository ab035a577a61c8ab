"""The vectors of an index in parts: those of some pages at once, written to one file, and not made again.

A part is a range of rows of the page table. Embedding takes by far the longest of all that the stage does, so a stage that is
killed finds the parts that were finished.
"""

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from tqdm.auto import tqdm

from drag_ray.cluster.metrics import open_stage_recorder
from drag_ray.cluster.tasks import Step, map_rows
from drag_ray.corpus.image_store import ImageStore
from drag_ray.errors import ConfigError, DataError
from drag_ray.search import vectors
from drag_ray.search.config import EmbeddingConfig, ImageEmbeddingConfig
from drag_ray.search.index import PAGES_NAME, read_record
from drag_ray.search.page_table import PageTable, map_texts
from drag_ray.search.vectors import PROBE, VectorsRecord, write_vectors
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.file_access import reading

if TYPE_CHECKING:
    from PIL.Image import Image

    from drag_ray.engine.encoders.embedding import Embedder, ImageEmbedder

_logger = logging.getLogger(__name__)

DIR_NAME = "vector_parts"
IMAGES_DIR_NAME = "image_vector_parts"
_MAX_PAGES = 128
_ERRORS = {kind.__name__: kind for kind in (ConfigError, DataError)}
"""What can be wrong with a part, by its name."""


class VectorPart(NamedTuple):
    """The windows of some pages, or their pictures.

    Attributes:
        rows: of their pages, int64 (n,).
        vectors: float32 (n, dimensions).
        probe: the vector of `PROBE`, float32 (dimensions,).
    """

    rows: np.ndarray
    vectors: np.ndarray
    probe: np.ndarray


def plan_parts(parts_dir: Path, num_pages: int) -> dict[Path, range]:
    """The file of each part and its rows, in their order."""
    starts = range(0, num_pages, _MAX_PAGES)
    return {parts_dir / f"{start:010}.npz": range(start, min(start + _MAX_PAGES, num_pages)) for start in starts}


class PartEmbedder(ABC):
    """Makes parts in one process, with one model, on a GPU if the process sees one. The model is loaded with the first part.

    Args:
        pages_path: the page table of the index.
    """

    def __init__(self, pages_path: Path) -> None:
        self._pages_path = pages_path

    @abstractmethod
    def embed(self, rows: range) -> tuple[Sequence[int], np.ndarray]:
        """The rows of the pages that have vectors, once for each, and those: float32 (n, dimensions)."""

    @abstractmethod
    def embed_probe(self) -> np.ndarray:
        """The vector of `PROBE`: float32 (dimensions,)."""

    def write(self, path: Path, rows: range) -> None:
        """Embed the pages at `rows` and write their part, whole or not at all.

        Raises:
            ConfigError: the model cannot be loaded, or makes infinite numbers.
            DataError: a picture is missing or damaged; says of which page.
        """
        numbers, embedded = self.embed(rows)
        part = VectorPart(np.array(numbers, np.int64), embedded, self._probe)
        with artifacts.whole_or_absent(path) as scratch, scratch.open("wb") as stream:
            np.savez(stream, **part._asdict())

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """`write` for a row of Ray Data; what comes back is for `count_pages`, as Ray would bury an error."""
        try:
            self.write(Path(row["path"]), range(row["start"], row["stop"]))
        except tuple(_ERRORS.values()) as error:
            return {"pages": 0, "kind": type(error).__name__, "error": str(error)}
        return {"pages": row["stop"] - row["start"], "kind": "", "error": ""}

    @cached_property
    def _probe(self) -> np.ndarray:
        return self.embed_probe()


class WindowEmbedder(PartEmbedder):
    """Embeds the windows of pages.

    Args:
        config: the model and its windows.
        pages_path: as above.
    """

    def __init__(self, config: EmbeddingConfig, pages_path: Path) -> None:
        super().__init__(pages_path)
        self._config = config

    def embed(self, rows: range) -> tuple[Sequence[int], np.ndarray]:
        """See `PartEmbedder`; a page has as many vectors as windows."""
        texts = self._texts.slice(rows.start, len(rows)).to_pylist()
        cut = [(row, window) for row, text in zip(rows, texts, strict=True) for window in self._embedder.cut(text)]
        return [row for row, _ in cut], self._embedder.embed_pages([window for _, window in cut])

    def embed_probe(self) -> np.ndarray:
        """See `PartEmbedder`."""
        return self._embedder.embed_queries([PROBE])[0]

    @cached_property
    def _embedder(self) -> "Embedder":
        from drag_ray.engine.encoders.embedding import Embedder

        return Embedder(self._config, _choose_device(self._config.device))

    @cached_property
    def _texts(self) -> pa.ChunkedArray:
        return map_texts(self._pages_path)


class PictureEmbedder(PartEmbedder):
    """Embeds the pictures of pages.

    Args:
        config: the model.
        pages_path: as above.
        images_dir: the store of page images.
    """

    def __init__(self, config: ImageEmbeddingConfig, pages_path: Path, images_dir: Path) -> None:
        super().__init__(pages_path)
        self._config = config
        self._store = ImageStore(images_dir)

    def embed(self, rows: range) -> tuple[Sequence[int], np.ndarray]:
        """See `PartEmbedder`; a page without a picture has no vector, the others one each."""
        keys = {row: key for row in rows if (key := self._pages.page(row).image)}
        vectors = [np.empty((0, len(self._probe)), np.float32)]
        for start in range(0, len(keys), self._config.batch_size):  # so that few pictures are in memory
            batch = [*keys][start : start + self._config.batch_size]
            vectors.append(self._embedder.embed_images([self._open(row, keys[row]) for row in batch]))
        return list(keys), np.concatenate(vectors)

    def _open(self, row: int, key: str) -> "Image":
        try:
            return self._store.open(key)
        except DataError as error:
            file, page_number = self._pages.key(row)
            root = self._store.root
            raise DataError(
                f"{root / key}: the picture of {file}#{page_number} is missing or damaged since it was made. "
                f"Run: rm -r {root.parent}, and the same command again: it reads the documents anew."
            ) from error

    def embed_probe(self) -> np.ndarray:
        """See `PartEmbedder`."""
        return self._embedder.embed_texts([PROBE])[0]

    @cached_property
    def _embedder(self) -> "ImageEmbedder":
        from drag_ray.engine.encoders.embedding import ImageEmbedder

        return ImageEmbedder(self._config, _choose_device(self._config.device))

    @cached_property
    def _pages(self) -> PageTable:
        return PageTable(self._pages_path)


def _choose_device(wanted: str) -> str:
    import torch

    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


def embed_texts(config: EmbeddingConfig, index_dir: Path, folder: StageFolder) -> int:
    """Write the vectors of all pages of an index into a stage's folder; those of its parts that have a file are kept.

    Args:
        index_dir: the folder of the search index.

    Returns:
        The number of windows.

    Raises:
        ConfigError: the model cannot be loaded, makes infinite numbers, or was trained for another index.
    """
    stage_dir = folder.path.resolve()
    embedder = Step(WindowEmbedder, (config, index_dir.resolve() / PAGES_NAME))
    record = read_record(index_dir)
    check_trained_for(config, record.fingerprint)
    paths = _embed_parts(embedder, config.device, stage_dir / DIR_NAME, record.num_pages, folder)
    return merge_parts(paths, stage_dir / vectors.DIR_NAME, record.fingerprint, config)


def check_trained_for(config: EmbeddingConfig, index_fingerprint: str) -> None:
    """ConfigError where finetune has trained the model for another index, unless that is allowed."""
    from drag_ray.engine.models.model_folder import locate_model
    from drag_ray.engine.models.relevance import EmbedderNote, read_note

    note = read_note(locate_model(config.model, "embedding.model"), EmbedderNote)
    if note is None or note.index_fingerprint in ("", index_fingerprint):
        return
    doubt = (
        f"embedding.model {config.model!r} was trained for another index ({note.index_fingerprint}) than is embedded "
        f"({index_fingerprint}). Where that is another collection, its vectors can find far less than words do "
        "(docs/methods/encoders.md): compare `dense` with `question` in an evaluation, or train one for this index."
    )
    if not config.other_index:
        raise ConfigError(f"{doubt} An index that has grown is another too: --embedding.other-index embeds it so.")
    _logger.warning(doubt)


def embed_pictures(config: ImageEmbeddingConfig, index_dir: Path, images_dir: Path, folder: StageFolder) -> int:
    """Write the vectors of the pictures of all pages, as `embed_texts`; returns how many there are.

    Raises:
        DataError: a picture is missing or damaged.
    """
    stage_dir = folder.path.resolve()
    embedder = Step(PictureEmbedder, (config, index_dir.resolve() / PAGES_NAME, images_dir.resolve()))
    record = read_record(index_dir)
    paths = _embed_parts(embedder, config.device, stage_dir / IMAGES_DIR_NAME, record.num_pages, folder)
    return merge_parts(paths, stage_dir / vectors.IMAGES_DIR_NAME, record.fingerprint, config)


def _embed_parts(embedder: Step, device: str, parts_dir: Path, num_pages: int, folder: StageFolder) -> list[Path]:
    """The parts of the vectors of all pages, by what makes them; those with a file are kept."""
    plan = plan_parts(parts_dir, num_pages)
    left = {path: part for path, part in plan.items() if not path.exists()}
    recorder = open_stage_recorder(folder.path)
    with tqdm(
        desc="embedding",
        unit=" pages",
        total=num_pages,
        initial=num_pages - sum(map(len, left.values())),
        mininterval=0.5 if sys.stderr.isatty() else 5,
    ) as progress:
        rows = [{"path": str(path), "start": part.start, "stop": part.stop} for path, part in left.items()]
        for row in map_rows([embedder], rows, device, folder.path):
            progress.update(count_pages(row))
            recorder.set_progress("embedded_pages", int(progress.n), num_pages)
    return list(plan)


def count_pages(row: dict[str, Any]) -> int:
    """The pages of a part that are done, from what a `PartEmbedder` gave back. Raises what kept it from writing the part."""
    if row["error"]:
        raise _ERRORS[row["kind"]](row["error"])
    return row["pages"]


def read_part(path: Path) -> VectorPart:
    """Read what `PartEmbedder.write` wrote.

    Raises:
        ArtifactError: the file cannot be read.
    """
    with reading(path, f"Run: rm {path}, and the same command again."), np.load(path) as arrays:
        return VectorPart(**arrays)


def merge_parts(
    part_paths: Sequence[Path], vectors_dir: Path, index_fingerprint: str, config: EmbeddingConfig | ImageEmbeddingConfig
) -> int:
    """Write the vectors of an index from all its parts, in the order of their rows; returns how many there are."""
    from drag_ray.engine.models.model_folder import resolve_name

    num_windows = sum(len(read_part(path).rows) for path in part_paths)
    probe = read_part(part_paths[0]).probe
    options = config.model_copy(update={"model": resolve_name(config.model)}).model_dump(mode="json")
    record = VectorsRecord(index_fingerprint, num_windows, len(probe), options, probe.tolist())
    write_vectors(_read_pairs(part_paths), vectors_dir, record)
    return num_windows


def _read_pairs(part_paths: Sequence[Path]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for path in part_paths:
        part = read_part(path)
        yield part.rows, part.vectors
