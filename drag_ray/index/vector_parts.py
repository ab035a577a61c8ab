"""The vectors of an index in parts: those of some pages at once, written to one file, and not made again.

A part is some rows of the page table. Embedding takes by far the longest of all that the stage does, so a stage that is
killed finds the parts that were finished, and pages whose text or picture an earlier index has too are in no part: their
vectors are taken from there.
"""

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from drag_ray.cluster.metrics import show_progress
from drag_ray.cluster.tasks import Step, map_rows
from drag_ray.corpus.image_store import ImageStore
from drag_ray.errors import ConfigError, DataError, SearchIndexError
from drag_ray.search import vectors
from drag_ray.search.config import EmbeddingConfig, ImageEmbeddingConfig
from drag_ray.search.index import PAGES_NAME, IndexRecord, read_record
from drag_ray.search.page_table import PageTable, map_texts
from drag_ray.search.vectors import KEY_TYPE, PROBE, EarlierVectors, VectorsRecord, write_vectors
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
_BATCH_KEPT = 8_192
_ERRORS = {kind.__name__: kind for kind in (ConfigError, DataError)}
"""What can be wrong with a part, by its name."""


class VectorPart(NamedTuple):
    """The windows of some pages, or their pictures.

    Attributes:
        rows: of their pages, int64 (n,).
        vectors: float32 (n, dimensions).
        probe: the vector of `PROBE`, float32 (dimensions,).
        keys: hashes of what the vectors were made of, `KEY_TYPE` (n,).
    """

    rows: np.ndarray
    vectors: np.ndarray
    probe: np.ndarray
    keys: np.ndarray


class Kept(NamedTuple):
    """Vectors that are taken from an earlier index.

    Attributes:
        earlier: those of that index.
        rows: of their pages in this one, ascending, int64 (n,).
        places: of the vectors in the earlier ones, int64 (n,).
        keys: as in a part.
    """

    earlier: EarlierVectors
    rows: np.ndarray
    places: np.ndarray
    keys: np.ndarray

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows and vectors of a range of them."""
        return self.rows[start:stop], self.earlier.vectors[self.places[start:stop]]


def plan_parts(parts_dir: Path, rows: Sequence[int]) -> dict[Path, Sequence[int]]:
    """The file of each part, named by its rows, and these, in their order.

    Args:
        rows: of the pages that are to be embedded, ascending.
    """
    parts = (rows[start : start + _MAX_PAGES] for start in range(0, len(rows), _MAX_PAGES))
    return {parts_dir / f"{part[0]:010}-{artifacts.compute_fingerprint(list(part))}.npz": part for part in parts}


class PartEmbedder(ABC):
    """Makes parts in one process, with one model, on a GPU if the process sees one. The model is loaded with the first part.

    Args:
        pages_path: the page table of the index.
    """

    def __init__(self, pages_path: Path) -> None:
        self._pages_path = pages_path

    @abstractmethod
    def read_content(self, row: int) -> str:
        """The text of a page, or the key of its picture: what its vectors are made of."""

    def compute_key(self, row: int) -> bytes:
        """The hash of what a page's vectors are made of."""
        return hashlib.blake2b(self.read_content(row).encode(), digest_size=KEY_TYPE.itemsize // 2).hexdigest().encode()

    @abstractmethod
    def embed(self, rows: Sequence[int]) -> tuple[Sequence[int], np.ndarray]:
        """The rows of the pages that have vectors, once for each, and those: float32 (n, dimensions)."""

    @cached_property
    @abstractmethod
    def probe(self) -> np.ndarray:
        """The vector of `PROBE`: float32 (dimensions,)."""

    def write(self, path: Path, rows: Sequence[int]) -> None:
        """Embed the pages at `rows` and write their part, whole or not at all.

        Raises:
            ConfigError: the model cannot be loaded, or makes infinite numbers.
            DataError: a picture is missing or damaged; says of which page.
        """
        numbers, embedded = self.embed(rows)
        keys = np.array([self.compute_key(row) for row in numbers], KEY_TYPE)
        part = VectorPart(np.array(numbers, np.int64), embedded, self.probe, keys)
        with artifacts.whole_or_absent(path) as scratch, scratch.open("wb") as stream:
            np.savez(stream, **part._asdict())

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """`write` for a row of Ray Data; what comes back is for `count_pages`, as Ray would bury an error."""
        try:
            self.write(Path(row["path"]), row["rows"])
        except tuple(_ERRORS.values()) as error:
            return {"pages": 0, "kind": type(error).__name__, "error": str(error)}
        return {"pages": len(row["rows"]), "kind": "", "error": ""}


class WindowEmbedder(PartEmbedder):
    """Embeds the windows of pages.

    Args:
        config: the model and its windows.
        pages_path: as above.
    """

    def __init__(self, config: EmbeddingConfig, pages_path: Path) -> None:
        super().__init__(pages_path)
        self._config = config

    def read_content(self, row: int) -> str:
        """See `PartEmbedder`."""
        return self._texts[row].as_py()

    def embed(self, rows: Sequence[int]) -> tuple[Sequence[int], np.ndarray]:
        """See `PartEmbedder`; a page has as many vectors as windows."""
        cut = [(row, window) for row in rows for window in self._embedder.cut(self.read_content(row))]
        return [row for row, _ in cut], self._embedder.embed_pages([window for _, window in cut])

    @cached_property
    def probe(self) -> np.ndarray:
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

    def read_content(self, row: int) -> str:
        """See `PartEmbedder`."""
        return self._pages.page(row).image

    def embed(self, rows: Sequence[int]) -> tuple[Sequence[int], np.ndarray]:
        """See `PartEmbedder`; a page without a picture has no vector, the others one each."""
        keys = {row: key for row in rows if (key := self.read_content(row))}
        vectors = [np.empty((0, len(self.probe)), np.float32)]
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

    @cached_property
    def probe(self) -> np.ndarray:
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
    embedder = Step(WindowEmbedder, (config, index_dir.resolve() / PAGES_NAME))
    record = read_record(index_dir)
    check_trained_for(config, record.fingerprint)
    return _embed(embedder, config, ("embedding", DIR_NAME, vectors.DIR_NAME), record, folder)


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
        "(docs/train/rankers.md): compare `dense` with `question` in an evaluation, or train one for this index."
    )
    if not config.other_index:
        raise ConfigError(f"{doubt} An index that has grown is another too: --embedding.other-index embeds it so.")
    _logger.warning(doubt)


def embed_pictures(config: ImageEmbeddingConfig, index_dir: Path, images_dir: Path, folder: StageFolder) -> int:
    """Write the vectors of the pictures of all pages, as `embed_texts`; returns how many there are.

    Raises:
        DataError: a picture is missing or damaged.
    """
    embedder = Step(PictureEmbedder, (config, index_dir.resolve() / PAGES_NAME, images_dir.resolve()))
    names = ("image_embedding", IMAGES_DIR_NAME, vectors.IMAGES_DIR_NAME)
    return _embed(embedder, config, names, read_record(index_dir), folder)


def _embed(
    embedder: Step,
    config: EmbeddingConfig | ImageEmbeddingConfig,
    names: tuple[str, str, str],
    record: IndexRecord,
    folder: StageFolder,
) -> int:
    """Write the vectors of all pages, all of one model: a name on the Hugging Face Hub may stand for another one than before.

    Args:
        names: of the section of `config`, of the folder of the parts and of that of the vectors.
    """
    section, parts_name, vectors_name = names
    stage_dir = folder.path.resolve()
    embed = partial(_embed_parts, embedder, config.device, stage_dir / parts_name, record.num_pages, folder)
    kept = _find_kept(embedder, section, vectors_name, record.num_pages, folder)
    paths = embed(kept)
    if kept and not all(kept.earlier.record.is_of(read_part(path).probe) for path in paths):
        _logger.info("All pages are embedded: the model is no longer the one that made the vectors of the earlier index.")
        kept = None
        paths = embed(kept)
    return merge_parts(paths, stage_dir / vectors_name, record.fingerprint, config, kept)


def _find_kept(embedder: Step, section: str, dir_name: str, num_pages: int, folder: StageFolder) -> Kept | None:
    """The vectors that the same model made of the same texts, or pictures, before; None where there are none."""
    if folder.earlier is None or not (folder.earlier / dir_name).exists():
        return None
    origin = artifacts.require_manifest(folder.earlier).origin
    own = folder.identity.to_dict()
    inputs = (f"{section}.model", "finetune")
    made_by = [[one["version"], one["config"].get(section), *map(one["inputs"].get, inputs)] for one in (origin, own)]
    if artifacts.compute_fingerprint(made_by[0]) != artifacts.compute_fingerprint(made_by[1]):
        _logger.info(f"Embedding all pages: {folder.earlier / dir_name} was made by another model or with other options.")
        return None
    try:
        earlier = EarlierVectors(folder.earlier / dir_name)
    except SearchIndexError as error:
        _logger.info(f"Embedding all pages: {error}")
        return None
    maker = cast(PartEmbedder, embedder.made(*embedder.arguments))  # loads no model
    keys = [maker.compute_key(row) for row in range(num_pages)]
    found = [(row, place, key) for row, key in enumerate(keys) for place in earlier.find(key)]
    rows, places, kept_keys = zip(*found, strict=True) if found else ((), (), ())
    return Kept(earlier, np.array(rows, np.int64), np.array(places, np.int64), np.array(kept_keys, KEY_TYPE))


def _embed_parts(
    embedder: Step, device: str, parts_dir: Path, num_pages: int, folder: StageFolder, kept: Kept | None
) -> list[Path]:
    """The parts of the vectors of all pages that are not kept, by what makes them; those with a file are kept too."""
    known = set(kept.rows.tolist()) if kept else set[int]()
    plan = plan_parts(parts_dir, [row for row in range(num_pages) if row not in known])
    left = {path: part for path, part in plan.items() if not path.exists()}
    done = num_pages - sum(map(len, left.values()))
    with show_progress(folder.path, "embedding", "pages", "embedded_pages", num_pages, done) as advance:
        rows = [{"path": str(path), "rows": list(part)} for path, part in left.items()]
        for row in map_rows([embedder], rows, device, folder.path):
            advance(count_pages(row))
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
    part_paths: Sequence[Path],
    vectors_dir: Path,
    index_fingerprint: str,
    config: EmbeddingConfig | ImageEmbeddingConfig,
    kept: Kept | None = None,
) -> int:
    """Write the vectors of an index from all its parts and what is kept, in order of their rows; returns how many there are."""
    from drag_ray.engine.models.model_folder import resolve_name

    parts = (read_part(path) for path in part_paths)
    of_parts = [(part.rows, part.keys, part.probe) for part in parts]
    rows = np.concatenate([*(rows for rows, _, _ in of_parts), *([kept.rows] if kept else [])])
    keys = np.concatenate([*(keys for _, keys, _ in of_parts), *([kept.keys] if kept else [])])
    probe = of_parts[0][2].tolist() if of_parts or not kept else kept.earlier.record.probe
    options = config.model_copy(update={"model": resolve_name(config.model)}).model_dump(mode="json")
    record = VectorsRecord(index_fingerprint, len(rows), len(probe), options, probe)
    write_vectors(_read_in_order(part_paths, kept), vectors_dir, record, keys[np.argsort(rows, kind="stable")])
    return len(rows)


def _read_in_order(part_paths: Sequence[Path], kept: Kept | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The parts with what is kept of the pages between theirs, a batch of that at a time, and then the rest of what is kept."""
    place = 0
    for part in map(read_part, part_paths):
        rows, embedded = part.rows, part.vectors
        last = int(np.searchsorted(kept.rows, rows[-1])) if kept and len(rows) else place
        while kept and place < last:
            stop = min(place + _BATCH_KEPT, last)
            num = int(np.searchsorted(rows, kept.rows[stop])) if stop < last else len(rows)  # before the next batch
            yield _put_in_order((rows[:num], embedded[:num]), kept.read(place, stop))
            rows, embedded, place = rows[num:], embedded[num:], stop
        yield rows, embedded
    for start in range(place, len(kept.rows) if kept else 0, _BATCH_KEPT):
        assert kept is not None
        yield kept.read(start, start + _BATCH_KEPT)


def _put_in_order(*several: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    rows, embedded = map(np.concatenate, zip(*several, strict=True))
    order = np.argsort(rows, kind="stable")
    return rows[order], embedded[order]
