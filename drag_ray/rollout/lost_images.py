"""Images of a run's own that are gone or damaged: the rollouts that have shown them have not finished, and run again."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.corpus.image_store import ImageStore, is_key
from drag_ray.errors import DataError
from drag_ray.rollout import journal
from drag_ray.rollout.folder import CORRUPT_DIR_NAME, IMAGES_DIR_NAME, TRAJECTORIES_DIR_NAME
from drag_ray.storage.file_access import reading, writing

_SHOWN = re.compile(r'(?<!\\)"image": ?"([^"\\]{1,80})"')
"""An image part in a conversation that is JSON; within a text every quotation mark has a backslash before it."""


def drop_rollouts_without_images(run_dir: Path, image_dirs: Sequence[Path], *, shows_degraded: bool = False) -> int:
    """Set damaged images aside, and take out of the journal the rollouts that were shown an image which no store has.

    Only rollouts that have called a tool are looked at, or all where pictures of the index were made worse, and of their images
    those that lie in no store of the index: what is missing there the index stage makes again.

    Args:
        image_dirs: the stores of the index.
        shows_degraded: whether rollouts were shown such pictures.

    Returns:
        How many rollouts will run again.

    Raises:
        ArtifactError: a file cannot be read, moved or written.
    """
    is_there: dict[str, bool] = {}
    num_dropped = 0
    for path in journal.list_files(run_dir, TRAJECTORIES_DIR_NAME):
        shown = _read_shown(path, of_all=shows_degraded)
        for key in {key for keys in shown.values() for key in keys} - is_there.keys():
            is_of_index = is_key(key) and any((root / key).is_file() for root in image_dirs)
            is_there[key] = _is_whole(run_dir, key) or is_of_index
        lost = [rollout_id for rollout_id, keys in shown.items() if not all(is_there[key] for key in keys)]
        if lost:
            journal.drop(path, lost)
            num_dropped += len(lost)
    return num_dropped


def _read_shown(path: Path, *, of_all: bool) -> Mapping[str, frozenset[str]]:
    """The keys of the images that each rollout was shown which called a tool, or each one, by its id."""
    with reading(path):
        file = pq.ParquetFile(path)
        tools = schemas.read_columns(file, (), ("tool",))["turns"].to_pylist()
        has_called = [of_all or any(turn["tool"] for turn in turns) for turns in tools]
        if not any(has_called):
            return {}
        rows = file.read(columns=["id", "messages"]).filter(pa.array(has_called))
    return {row["id"]: frozenset(_SHOWN.findall(row["messages"])) for row in rows.to_pylist()}


def _is_whole(run_dir: Path, key: str) -> bool:
    """True if the rollouts' own store has an image as it was written. One that is damaged is moved away, or it would stay so."""
    store = ImageStore(run_dir / IMAGES_DIR_NAME)
    try:
        store.read(key)
    except DataError:
        damaged = store.root / key
        with writing(damaged):
            if is_key(key) and damaged.exists():
                (run_dir / CORRUPT_DIR_NAME).mkdir(exist_ok=True)
                damaged.rename(run_dir / CORRUPT_DIR_NAME / damaged.name)
        return False
    return True
