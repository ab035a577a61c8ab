"""Files in an object store that others have put there: copied to a folder, from where they are read as any others."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from drag_ray.errors import DataError
from drag_ray.storage.artifacts import whole_or_absent
from drag_ray.storage.file_access import HIDDEN, writing
from drag_ray.storage.object_store import ObjectState, ObjectStore

_logger = logging.getLogger(__name__)

_CONNECTIONS = 16


def fetch_files(uri: str, folder: Path) -> Path:
    """Copy all objects at a place, or the one that the URI names, but for hidden ones. What is there as it lies there is kept.

    Args:
        uri: see `check_uri`.
        folder: which workers see as well.

    Returns:
        The folder, or the one file in it.

    Raises:
        DataError: nothing lies there.
        StorageError: the store does not answer.
        ArtifactError: a file cannot be written.
    """
    store = ObjectStore(uri)
    paths = {state: folder / (state.key or PurePosixPath(urlsplit(uri).path).name) for state in store.list_states()}
    wanted = {state: path for state, path in paths.items() if not _is_hidden(path.relative_to(folder))}
    if not wanted:
        raise DataError(f"{store.uri}: nothing lies there. Check the URI, and that this machine may read it.")
    missing = {state: path for state, path in wanted.items() if not _is_there(state, path)}
    _logger.info(
        f"{store.uri}: {len(missing):,} of {len(wanted):,} files, {sum(state.bytes for state in missing):,} bytes, to copy"
    )
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(lambda item: _copy(store, *item), missing.items()))
    [first, *others] = wanted
    return folder if others or first.key else wanted[first]


def _is_hidden(path: Path) -> bool:
    """True if a part of a path is hidden, as `..` is too."""
    return any(part.startswith(HIDDEN) for part in path.parts)


def _is_there(state: ObjectState, path: Path) -> bool:
    with writing(path):
        found = path.stat() if path.is_file() else None
    return found is not None and (found.st_size, found.st_mtime_ns) == (state.bytes, state.changed_ns)


def _copy(store: ObjectStore, state: ObjectState, path: Path) -> None:
    with whole_or_absent(path) as scratch:
        store.fetch(state.key, scratch)
        os.utime(scratch, ns=(state.changed_ns, state.changed_ns))
