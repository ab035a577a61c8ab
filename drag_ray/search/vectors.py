"""The vectors of an index's pages: a page is cut into windows, and each window has one. Of a page's picture there is one.

    vectors/          of texts; those of pictures are kept in image_vectors/ in the same way
      vectors.npy     float32 (windows, dimensions), in order of the pages; memory-mapped by every searcher
      rows.npy        int64 (windows,): the row of each window's page in the index's page table, ascending
      keys.npy        (windows,): a hash of what each was made of, the page's text or picture, by which the next index keeps it
      vectors.json    what made the vectors
      checksums.jsonl the sizes and hashes of all these (see `checksums`)
    model/            beside them, of vectors that the stage `embed` has made with a model that the run has trained: a copy of it

Search is exact: every query is compared with every window, so that a ranking is not a matter of chance and nothing has to be
tuned. That reads the whole file for each query. On two cores a query takes 20 ms over 100,000 windows of 384 dimensions (154 MB)
and 180 ms over a million; for many more an approximate index would be the better choice.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from drag_ray.errors import SearchIndexError
from drag_ray.search.index import REBUILD, check_files, write_checksums
from drag_ray.search.ranker import Ranking
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import replaced_folder
from drag_ray.storage.file_access import reading
from drag_ray.storage.json_text import parse_json

DIR_NAME = "vectors"
IMAGES_DIR_NAME = "image_vectors"
MODEL_DIR_NAME = "model"
_OPTIONS = {DIR_NAME: "embedding.model", IMAGES_DIR_NAME: "image-embedding.model"}
PROBE = "Which page says how fast the rotor may turn?"
"""A query whose vector is kept with those of the pages: it shows whether a model still is the one that made them."""
_RECORD_NAME, _ROWS_NAME, _KEYS_NAME, _VECTORS_NAME = "vectors.json", "rows.npy", "keys.npy", "vectors.npy"
KEY_TYPE = np.dtype("S32")
_EMBED_JOB = "jobs/embed.py"
_FORMAT = 1
_MIN_AGREEMENT = 0.99
"""Cosine of the probe's vectors, then and now: number formats and processors change less, another model changes more."""
_SCORE_DIGITS = 5
"""What is left of a score: the vectors of equal texts differ behind them, by the texts that they were embedded with."""


@dataclass(frozen=True)
class VectorsRecord:
    """The record of what made the vectors of an index.

    `index_fingerprint` is that of the index's record, `embedding` the options by which queries are embedded too (as
    `EmbeddingConfig` or `ImageEmbeddingConfig` has them), and `probe` the vector of the query `PROBE`.
    """

    index_fingerprint: str
    num_windows: int
    dimensions: int
    embedding: dict[str, Any]
    probe: list[float]
    format: int = _FORMAT

    def is_of(self, probe: np.ndarray) -> bool:
        """True if the model that has made this vector of the query `PROBE` is the one that made the others."""
        return len(probe) == self.dimensions and _compute_cosine(probe, np.array(self.probe, np.float32)) >= _MIN_AGREEMENT


def has_vectors(vectors_dir: Path) -> bool:
    """True if there are vectors in a folder, sound or not."""
    return (vectors_dir / _RECORD_NAME).exists()


def write_vectors(
    parts: Iterable[tuple[np.ndarray, np.ndarray]], vectors_dir: Path, record: VectorsRecord, keys: np.ndarray | None = None
) -> None:
    """Write the vectors of all pages into `vectors_dir`, replacing what is there. One part of them is in memory at a time.

    Args:
        parts: rows, ascending within and between the parts, int64 (n,), and vectors, float32 (n, dimensions); as many of both as
            the record says.
        keys: of what each was made of, `KEY_TYPE`; without them no later index keeps any.

    Raises:
        ArtifactError: no space is left, or the folder cannot be written.
    """
    with replaced_folder(vectors_dir) as scratch:
        if keys is not None:
            np.save(scratch / _KEYS_NAME, keys.astype(KEY_TYPE))
        _write_parts(parts, scratch, (record.num_windows, record.dimensions))
        artifacts.write_json(scratch / _RECORD_NAME, asdict(record))
        write_checksums(scratch)


def _write_parts(parts: Iterable[tuple[np.ndarray, np.ndarray]], scratch: Path, shape: tuple[int, int]) -> None:
    """By writes, of which a disk that is full refuses one; under a mapped file it would end the process."""
    with (scratch / _ROWS_NAME).open("wb") as all_rows, (scratch / _VECTORS_NAME).open("wb") as all_vectors:
        _write_header(all_rows, np.dtype(np.int64), shape[:1])
        _write_header(all_vectors, np.dtype(np.float32), shape)
        for rows, vectors in parts:
            all_rows.write(rows.astype(np.int64).tobytes())
            all_vectors.write(vectors.astype(np.float32).tobytes())


def _write_header(stream: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)


class PageVectors:
    """The vectors of an index, open for search. Safe to share between threads.

    Raises:
        SearchIndexError: there are none, they are damaged, or they are of another index.
        ArtifactError: memory is used up.
    """

    def __init__(self, vectors_dir: Path, index_fingerprint: str) -> None:
        self.vectors_dir = vectors_dir
        with reading(vectors_dir):
            self.record = read_vectors_record(vectors_dir, index_fingerprint)
            check_files(vectors_dir, _VECTORS_NAME)
            self._vectors, rows = _open_files(vectors_dir, (self.record.num_windows, self.record.dimensions))
        self._rows, self._starts = np.unique(rows, return_index=True)

    def check_model(self, probe: np.ndarray) -> None:
        """SearchIndexError unless the model that has made this vector of the query `PROBE` is the one that made the others."""
        if not self.record.is_of(probe):
            raise SearchIndexError(
                f"{self.vectors_dir}: the embedding model {self.record.embedding.get('model')!r} is no longer the one that "
                f"made these vectors. Restore that model, or embed the pages again: {_name_command(self.vectors_dir)}"
            )

    def rank(self, query: np.ndarray, top_k: int, shown: np.ndarray | None = None) -> Ranking:
        """The `top_k` pages whose best window has the largest inner product with a query, equal scores in order of their rows.

        Args:
            query: float32 (dimensions,).
            top_k: pages at most; those without text, or picture, are never among them.
            shown: pages that may be: bool (pages of the index,); all where nothing is said.
        """
        kept = slice(None) if shown is None else np.flatnonzero(shown[self._rows])
        rows = self._rows[kept]
        if not len(rows):
            return Ranking()
        products = self._vectors @ query
        scores = np.maximum.reduceat(products, self._starts)[kept].astype(np.float64).round(_SCORE_DIGITS)
        top_k = min(top_k, len(scores))
        worst = np.partition(scores, -top_k)[-top_k]
        candidates = np.flatnonzero(scores >= worst)
        best = candidates[np.argsort(-scores[candidates], kind="stable")][:top_k]
        return Ranking(zip(scores[best].tolist(), rows[best].tolist(), strict=True))


class EarlierVectors:
    """The vectors of an earlier index, by what they were made of.

    Raises:
        SearchIndexError: there are none with keys, or they are not what was written.
        ArtifactError: memory is used up.
    """

    def __init__(self, vectors_dir: Path) -> None:
        with reading(vectors_dir):
            self.record = _read_record(vectors_dir)
            check_files(vectors_dir, _VECTORS_NAME, whole=True)
            self.vectors, rows = _open_files(vectors_dir, (self.record.num_windows, self.record.dimensions))
            if not (vectors_dir / _KEYS_NAME).exists():
                raise SearchIndexError(f"{vectors_dir}: has no {_KEYS_NAME}, as vectors of an earlier version")
            keys = np.load(vectors_dir / _KEYS_NAME)
        _, starts = np.unique(rows, return_index=True)
        stops = [*starts[1:].tolist(), len(rows)]
        self._places = dict(zip(keys[starts].tolist(), map(range, starts.tolist(), stops), strict=True))

    def find(self, key: bytes) -> range:
        """The places of a page's vectors; empty where there are none."""
        return self._places.get(key, range(0))


def _name_command(vectors_dir: Path) -> str:
    """The command that makes such vectors."""
    own = artifacts.read_command(vectors_dir.parent)
    return own if _EMBED_JOB in own else f"python jobs/index.py --{_OPTIONS.get(vectors_dir.name, _OPTIONS[DIR_NAME])} FOLDER"


def _compute_cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))


def _open_files(vectors_dir: Path, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The vectors, mapped, and the rows of their pages."""
    try:
        vectors = np.load(vectors_dir / _VECTORS_NAME, mmap_mode="r")
        rows = np.load(vectors_dir / _ROWS_NAME)
        if (vectors.shape, rows.shape) != (shape, shape[:1]):
            raise ValueError(f"vectors of shape {vectors.shape} and {len(rows)} rows")
    except (OSError, ValueError, EOFError) as error:
        raise SearchIndexError(f"{vectors_dir}: cannot be read ({error}). {REBUILD}") from None
    return vectors, rows


def read_vectors_record(vectors_dir: Path, index_fingerprint: str) -> VectorsRecord:
    """The record of an index's vectors. Raises SearchIndexError: there are none, it is damaged, or they are of another index."""
    record = _read_record(vectors_dir)
    if record.index_fingerprint != index_fingerprint:
        of_others = f"vectors of the index {record.index_fingerprint}, this one is {index_fingerprint}"
        command = _name_command(vectors_dir)
        remedy = f"Embed its pages: {command}" if _EMBED_JOB in command else REBUILD
        raise SearchIndexError(f"{vectors_dir}: {of_others}. {remedy}")
    return record


def _read_record(vectors_dir: Path) -> VectorsRecord:
    path = vectors_dir / _RECORD_NAME
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
        found = values.get("format")
        if found != _FORMAT:
            raise SearchIndexError(f"{vectors_dir}: vectors of format {found}, this code reads format {_FORMAT}. {REBUILD}")
        return VectorsRecord(**values)
    except FileNotFoundError:
        raise SearchIndexError(f"{vectors_dir}: no vectors of pages. Make them: {_name_command(vectors_dir)}") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SearchIndexError(f"{path}: not a record of vectors ({error}). {REBUILD}") from None
