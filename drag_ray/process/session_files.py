"""Folders with a file for each trajectory, the form in which viewers of agents' sessions want them."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from drag_ray.corpus.problems import Problem, read_one
from drag_ray.errors import DataError
from drag_ray.storage.file_access import list_folder
from drag_ray.storage.new_folder import new_folder
from drag_ray.types import Trajectory

MAX_FILE_BYTES = 64 * 2**20
"""No trajectory is nearly as long; a larger file is set aside without being read."""

_MAX_NAME_CHARS = 80
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def write_sessions(trajectories: Iterable[Trajectory], folder: Path, suffix: str, encode: Callable[[Trajectory], str]) -> int:
    """Write a file for each trajectory into a new folder, which is whole or absent; returns how many.

    Args:
        suffix: of the files' names, which otherwise consist of a number and the trajectory's id.
        encode: the text of a file.

    Raises:
        DataError: something is there already.
        ArtifactError: the disk refuses.
    """
    num_files = 0
    with new_folder(folder, ", and a file for each trajectory needs a new or empty folder. Name another one.") as scratch:
        for num_files, trajectory in enumerate(trajectories, start=1):
            name = _name_file(num_files - 1, trajectory.id) + suffix
            (scratch / name).write_text(encode(trajectory), encoding="utf-8")
    return num_files


def read_sessions(
    path: Path, suffix: str, decode: Callable[[Path, bytes], Trajectory | Problem]
) -> Iterator[Trajectory | Problem]:
    """Sessions that `decode` makes of files with the suffix in a folder, in the order of their names, or of the file at `path`.

    A file of another kind, or too large a one, and a trajectory that was there before, become problems. Links are not followed.

    Raises:
        DataError: there is nothing at `path`.
        ArtifactError: the folder cannot be listed.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or folder. Give what drag-ray export has written, or one file of it.")
    seen: set[str] = set()
    for file in list_folder(path) if path.is_dir() else [path]:
        if file.name.startswith(".") and file != path:
            continue
        item = read_one("broken_file", str(file), _read_file, file, suffix, decode)
        if isinstance(item, Trajectory):
            if item.id in seen:
                item = Problem(str(file), f"id {item.id!r} comes again; the first one is kept", "duplicate")
            else:
                seen.add(item.id)
        yield item


def _read_file(file: Path, suffix: str, decode: Callable[[Path, bytes], Trajectory | Problem]) -> Trajectory | Problem:
    if file.is_symlink() or not file.is_file() or not file.name.endswith(suffix):
        return Problem(str(file), f"expected a regular file whose name ends with {suffix}", "unknown_file")
    with file.open("rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise DataError(f"more than {MAX_FILE_BYTES:,} bytes, which no trajectory has")
    return decode(file, data)


def _name_file(number: int, trajectory_id: str) -> str:
    return f"{number:06d}-{_UNSAFE.sub('-', trajectory_id)[:_MAX_NAME_CHARS]}"
