"""The vectors of an index in parts: those of some pages at once, written to one file, and not made again.

A part is a range of rows of the page table. Embedding takes by far the longest of all that the stage does, so a stage that is
killed finds the parts that were finished.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from drag_ray import artifacts
from drag_ray.errors import ConfigError
from drag_ray.file_access import reading
from drag_ray.search.config import EmbeddingConfig
from drag_ray.search.page_table import map_texts
from drag_ray.search.vectors import PROBE, VectorsRecord, write_vectors

if TYPE_CHECKING:
    from drag_ray.engine.embedding import Embedder

DIR_NAME = "vector_parts"
_MAX_PAGES = 128


class VectorPart(NamedTuple):
    """The windows of some pages: rows int64 (n,), their vectors float32 (n, dimensions), and the vector of the probe."""

    rows: np.ndarray
    vectors: np.ndarray
    probe: np.ndarray


def plan_parts(parts_dir: Path, num_pages: int) -> dict[Path, range]:
    """The file of each part and its rows, in their order."""
    starts = range(0, num_pages, _MAX_PAGES)
    return {parts_dir / f"{start:010}.npz": range(start, min(start + _MAX_PAGES, num_pages)) for start in starts}


class PartEmbedder:
    """Makes parts in one process, with one model, on a GPU if the process sees one. The model is loaded with the first part.

    Args:
        config: the model and its windows.
        pages_path: the page table of the index.
    """

    def __init__(self, config: EmbeddingConfig, pages_path: Path) -> None:
        self._config = config
        self._pages_path = pages_path

    def write(self, path: Path, rows: range) -> None:
        """Embed the windows of the pages at `rows` and write their part, whole or not at all.

        Raises:
            ConfigError: the model cannot be loaded, or makes infinite numbers.
        """
        texts = self._texts.slice(rows.start, len(rows)).to_pylist()
        cut = [(row, window) for row, text in zip(rows, texts, strict=True) for window in self._embedder.windows.cut(text)]
        vectors = self._embedder.embed_pages([window for _, window in cut])
        part = VectorPart(np.array([row for row, _ in cut], np.int64), vectors, self._probe)
        with artifacts.whole_or_absent(path) as scratch, scratch.open("wb") as stream:
            np.savez(stream, **part._asdict())

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """`write` for a row of Ray Data; what comes back says how many pages are done, or what is wrong, which Ray would bury."""
        try:
            self.write(Path(row["path"]), range(row["start"], row["stop"]))
        except ConfigError as error:
            return {"pages": 0, "error": str(error)}
        return {"pages": row["stop"] - row["start"], "error": ""}

    @cached_property
    def _embedder(self) -> "Embedder":
        import torch

        from drag_ray.engine.embedding import Embedder

        uses_gpu = self._config.device != "cpu" and torch.cuda.is_available()
        return Embedder(self._config, "cuda" if uses_gpu else "cpu")

    @cached_property
    def _texts(self) -> pa.ChunkedArray:
        return map_texts(self._pages_path)

    @cached_property
    def _probe(self) -> np.ndarray:
        return self._embedder.embed_queries([PROBE])[0]


def read_part(path: Path) -> VectorPart:
    """Read what `PartEmbedder.write` wrote.

    Raises:
        ArtifactError: the file cannot be read.
    """
    with reading(path, f"Run: rm {path}, and the same command again."), np.load(path) as arrays:
        return VectorPart(**arrays)


def merge_parts(part_paths: Sequence[Path], vectors_dir: Path, index_fingerprint: str, config: EmbeddingConfig) -> int:
    """Write the vectors of an index from all its parts, in the order of their rows; returns how many windows they have."""
    from drag_ray.engine.embedding_folder import resolve_name

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
