"""A folder that is closed to who reads it is named, where `Path.glob` would take it for an empty one."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.problems import Problem
from drag_ray.errors import ArtifactError
from drag_ray.format.tables import list_parts
from drag_ray.process.parts import read_dealt
from drag_ray.process.session_files import read_sessions
from drag_ray.process.trajectories import check_files
from drag_ray.stage_runs.damage import list_finished
from drag_ray.storage.file_access import list_folder
from drag_ray.storage.new_folder import new_folder
from drag_ray.transcripts.listing import list_files
from drag_ray.transcripts.thumbnails import open_thumbnails

READERS: dict[str, Callable[[Path], object]] = {
    "trajectories": lambda root: check_files(root / "trajectories"),
    "part-00000": lambda root: read_dealt(root / "part-00000"),
    "process/trajectories": lambda root: list_parts(root / "process"),
    "images": lambda root: ImageStore(root / "own").take_over(root / "images"),
    "rounds": list_finished,
    "run/collect/trajectories": lambda root: list_files(root / "run"),
    "run/collect/failures": lambda root: list_files(root / "run"),
    "run/evaluate/rollouts": lambda root: list_files(root / "run" / "evaluate"),
    "run/evaluate/rollouts/base/trajectories": lambda root: list_files(root / "run" / "evaluate"),
    "export": lambda root: list_files(root / "export"),
    "run/rollouts": lambda root: open_thumbnails(root / "run"),
    "sessions": lambda root: list(
        read_sessions(root / "sessions", ".json", lambda file, data: Problem(str(file), "", "broken_file"))
    ),
    "store": lambda root: new_folder(root / "store", "").__enter__(),
    "images/3f": lambda root: ImageStore(root / "own").take_over(root / "images"),
}


def close_folder(monkeypatch: pytest.MonkeyPatch, closed: Path) -> None:
    def refuse(listing: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".") -> Any:
            if not isinstance(path, int) and Path(os.fsdecode(path)) == closed:  # root may list every folder
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return listing(path)

        return call

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, refuse(getattr(os, name)))


@pytest.mark.parametrize("name", READERS)
def test_a_closed_folder_is_named_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    close_folder(monkeypatch, tmp_path / name)
    with pytest.raises(ArtifactError, match=rf"/{name}: cannot be read \(Permission denied\)\. Check its permissions"):
        READERS[name](tmp_path)


def test_a_folder_is_listed_by_pattern_and_in_order(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet", "notes.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in list_folder(tmp_path, "*.parquet")] == ["a.parquet", "b.parquet"]
    assert list_folder(tmp_path / "nowhere", "*.parquet") == []
