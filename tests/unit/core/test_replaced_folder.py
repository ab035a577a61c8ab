"""Folders that are written in the place of what is there: by one process at a time, whole or not at all."""

import threading
from pathlib import Path

import pytest

from drag_ray.storage.new_folder import replaced_folder


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if not path.name.startswith(".lock-"))


def test_writers_of_one_folder_never_share_a_scratch_folder(tmp_path: Path) -> None:
    begin, seen = threading.Barrier(4), dict[str, list[str]]()

    def write(name: str) -> None:
        begin.wait()
        with replaced_folder(tmp_path / "index") as scratch:
            for number in range(20):
                (scratch / f"{name}{number:02d}").write_text(name)
            seen[name] = list_names(scratch)

    writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert seen == {name: [f"{name}{number:02d}" for number in range(20)] for name in "abcd"}
    assert list_names(tmp_path / "index") in seen.values()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["index"]


def test_what_a_killed_writer_has_left_is_removed(tmp_path: Path) -> None:
    for name in ("index", ".index.unfinished"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").touch()
    with replaced_folder(tmp_path / "index") as scratch:
        (scratch / "new").touch()
    assert list_names(tmp_path) == ["index", "new"]


def test_a_writer_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "old").touch()

    def fail() -> None:
        with replaced_folder(tmp_path / "index") as scratch:
            (scratch / "new").touch()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list_names(tmp_path) == ["index", "old"]
