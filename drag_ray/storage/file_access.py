"""Access to files and folders: what the disk refuses, and memory that does not suffice, as an ArtifactError that names them."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from drag_ray.errors import ArtifactError, DragRayError

_VERIFY = "`drag-ray verify` on its run names the command that repeats it."
_DECODERS = ("pyarrow", "polars", "pyo3_runtime", "safetensors", "zipfile")
"""Modules whose errors say that a file is not what was written and are no ValueErrors; the third has the panics of Rust."""

HIDDEN = (".", "~$")
"""How names begin that programs give to what they keep for themselves: version control, file managers, open office documents."""


@contextlib.contextmanager
def writing(path: Path) -> Generator[None]:
    """Errors of the disk and of memory as ArtifactErrors that name what was to be written."""
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"{path}: cannot be written ({error.strerror or error}). Free some space or choose another --run-dir."
        ) from error
    except MemoryError as error:
        raise ArtifactError(f"{path}: cannot be written: {explain_memory(error)}") from error


@contextlib.contextmanager
def reading(path: Path, remedy: str = _VERIFY) -> Generator[None]:
    """Errors of the disk, of memory and of what decodes a file as ArtifactErrors that name what was to be read.

    Args:
        path: what is read.
        remedy: what to do where it is not there, or not what was written.
    """
    try:
        yield
    except DragRayError:
        raise
    except MemoryError as error:
        raise ArtifactError(f"{path}: cannot be read: {explain_memory(error)}") from error
    except OSError as error:
        # A decoder's own have no number, and what Arrow says of the disk has no text.
        is_of_disk = error.errno and not isinstance(error, FileNotFoundError)
        problem = _first_line(error.strerror or (error.errno and os.strerror(error.errno)) or error)
        advice = "Check its permissions and its disk." if is_of_disk else remedy
        raise ArtifactError(f"{path}: cannot be read ({problem}). {advice}") from error
    except BaseException as error:
        is_of_decoder = type(error).__module__.partition(".")[0] in _DECODERS
        if not (is_of_decoder or isinstance(error, ValueError | EOFError | RecursionError)):
            raise
        raise ArtifactError(f"{path}: not what was written ({_first_line(error)}). {remedy}") from error


def make_private(folder: Path) -> Path:
    """Make a folder that its owner alone can open, as pages, rollouts and weights are; one that is there keeps its mode.

    Folders above it that are missing, and all that comes into it, follow the umask: who makes the folder for a group beforehand,
    and sets the umask, shares it. Raises ArtifactError where it cannot be made.
    """
    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def open_own_folder(place: Path) -> Path:
    """This user's own folder below one that all users of a machine may share, as /tmp. Raises ArtifactError where it cannot be
    made, or is somebody else's."""
    folder = make_private(place / f"drag_ray-{os.getuid()}")
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise ArtifactError(f"{folder}: another user owns it and could change its files. Choose another place.")
    return folder


def explain_memory(error: MemoryError) -> str:
    """The out-of-memory message, with advice."""
    asked = _first_line(error)
    return f"memory is used up{f' ({asked})' if asked else ''}. End other programs, or take a machine with more."


def list_folder(folder: Path, pattern: str = "*") -> list[Path]:
    """The entries of a folder with names of this pattern, in order of the names; none where there is no such folder. Raises
    ArtifactError where it cannot be listed. `Path.glob` takes a folder that is closed to it for an empty one."""
    with reading(folder):
        try:
            return sorted(path for path in folder.iterdir() if path.match(pattern))
        except FileNotFoundError:
            return []


def create_mark(path: Path) -> bool:
    """Create an empty file. False if it is there already. Raises ArtifactError where no space is left, or the folder cannot be
    written."""
    with writing(path):
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            return False
    return True


def _first_line(said: object) -> str:
    return str(said).partition("\n")[0]
