"""Folders that are written whole or not at all."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from drag_ray.errors import DataError
from drag_ray.storage import checksums
from drag_ray.storage.artifacts import sync, sync_files
from drag_ray.storage.file_access import list_folder, make_private, writing

_SCRATCH_SUFFIX = ".unfinished"


@contextmanager
def new_folder(folder: Path, remedy: str) -> Generator[Path]:
    """A scratch folder to write into; on success it is brought to the disk and becomes `folder`, on failure it is removed.

    It is its owner's alone (see `file_access.make_private`).

    Args:
        folder: what is not there yet, or empty.
        remedy: follows "is there already" where it is not.

    Raises:
        DataError: something is there.
        ArtifactError: the disk refuses.
    """
    if folder.exists() and (not folder.is_dir() or list_folder(folder)):
        raise DataError(f"{folder}: is there already{remedy}")
    with writing(folder):
        make_private(folder.parent)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=_SCRATCH_SUFFIX))
        try:
            yield scratch
            sync_files(scratch, checksums.list_files(scratch))
            scratch.chmod(0o700)  # `shutil.copytree` gives it the mode of what it copies
            scratch.replace(folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def replaced_folder(folder: Path) -> Generator[Path]:
    """A scratch folder to write into; on success it takes the place of `folder`, on failure it is removed.

    Writers of one folder take turns, and what one that was killed has left is removed.

    Raises:
        ArtifactError: the disk refuses.
    """
    from filelock import FileLock

    scratch = folder.with_name(f".{folder.name}{_SCRATCH_SUFFIX}")
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".lock-{folder.name}")):
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                yield scratch
                shutil.rmtree(folder, ignore_errors=True)
                scratch.rename(folder)
                sync(folder.parent)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
