"""Access to files and folders, with what the disk refuses as an ArtifactError that names it."""

import contextlib
from collections.abc import Generator
from pathlib import Path

from drag_ray.errors import ArtifactError


@contextlib.contextmanager
def writing(path: Path) -> Generator[None]:
    """Errors of the disk as ArtifactErrors that name what was to be written."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


@contextlib.contextmanager
def reading(path: Path) -> Generator[None]:
    """Errors of the disk as ArtifactErrors that name what was to be read."""
    try:
        yield
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror or error}). Check its permissions and its disk.") from error


def list_folder(folder: Path, pattern: str = "*") -> list[Path]:
    """What lies in a folder and has a name of this pattern, in order of the names; nothing where there is no such folder.

    Raises:
        ArtifactError: it cannot be listed. `Path.glob` takes a folder that is closed to it for an empty one.
    """
    with reading(folder):
        try:
            return sorted(path for path in folder.iterdir() if path.match(pattern))
        except FileNotFoundError:
            return []


def create_mark(path: Path) -> bool:
    """Create an empty file. False if it is there already.

    Raises:
        ArtifactError: no space is left, or the folder cannot be written.
    """
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError as error:
        raise _unwritable(path, error) from error
    return True


def _unwritable(path: Path, error: OSError) -> ArtifactError:
    return ArtifactError(f"{path}: cannot be written ({error.strerror or error}). Free some space or choose another --run-dir.")
