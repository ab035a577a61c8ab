"""Folders: closed ones are named, private ones are their owner's alone, and others are replaced whole or not at all."""

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.engine.config import EndpointConfig
from drag_ray.engine.endpoints.spending import Spending
from drag_ray.engine.generate import Usage
from drag_ray.engine.models import model_folder
from drag_ray.errors import ArtifactError
from drag_ray.format.tables import list_parts
from drag_ray.process.interchange.atif import read_sessions
from drag_ray.process.trajectories import check_files
from drag_ray.process.trajectory_parts import read_dealt
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index, copy_to_node
from drag_ray.stage_runs.damage import list_finished
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.store import StageStore
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity, new_folder, replaced_folder
from drag_ray.storage.file_access import list_folder, open_own_folder
from drag_ray.storage.object_store import StorageConfig
from drag_ray.transcripts.listing import list_files
from drag_ray.transcripts.thumbnails import open_thumbnails
from drag_ray.types import Page

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
    "sessions": lambda root: list(read_sessions(root / "sessions", AgentConfig())),
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


SetUmask = Callable[[int], None]


def test_folders_are_listed_by_pattern_and_new_ones_are_their_owners_alone(tmp_path: Path, set_umask: SetUmask) -> None:
    for name in ("b.parquet", "a.parquet", "notes.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in list_folder(tmp_path, "*.parquet")] == ["a.parquet", "b.parquet"]
    assert list_folder(tmp_path / "nowhere", "*.parquet") == []
    with new_folder(tmp_path / "sessions", "") as scratch:
        (scratch / "1.json").write_text("{}")
        scratch.chmod(0o755)
    assert read_mode(tmp_path / "sessions") == 0o700


@pytest.fixture
def set_umask() -> Iterator[SetUmask]:
    earlier = os.umask(0o022)
    yield lambda mask: void(os.umask(mask))
    os.umask(earlier)


def void(_: object) -> None:
    pass


def read_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def read_modes(folder: Path) -> dict[bool, set[int]]:
    """The modes of all that lies in a folder: of folders, and of files."""
    modes: dict[bool, set[int]] = {True: set(), False: set()}
    for path in folder.rglob("*"):
        modes[path.is_dir()].add(read_mode(path))
    return modes


def run_index(run_dir: Path, address: str = "index") -> Path:
    """A stage with files of all who write some: this code, Arrow, Tantivy and numpy."""
    with StageFolder(run_dir / address, Identity("index", {}, {}, address=address)) as folder:
        artifacts.write_parquet(folder.path / "pages.parquet", schemas.to_table([Page("a.pdf", 1, 1, "rotor")], schemas.PAGES))
        build_index(folder.path / "pages.parquet", folder.path / "search_index", SearchConfig())
        Spending(folder.path / "spending.jsonl", EndpointConfig()).add(Usage(1, 1))
        folder.finish({"pages": 1})
    return run_dir / address


@pytest.mark.parametrize(("mask", "folders", "files"), [(0o022, 0o755, 0o644), (0o077, 0o700, 0o600)])
@pytest.mark.parametrize("address", ["index", "rounds/1/index"])
def test_a_run_is_its_owners_alone_whatever_the_umask(
    mask: int, folders: int, files: int, address: str, tmp_path: Path, set_umask: SetUmask
) -> None:
    set_umask(mask)
    run_index(tmp_path / "runs" / "mine", address)
    assert read_mode(tmp_path / "runs") == folders
    assert read_mode(tmp_path / "runs" / "mine") == 0o700
    assert read_modes(tmp_path / "runs" / "mine") == {True: {folders}, False: {files}}


def test_a_run_in_a_folder_that_was_made_for_a_group_is_open_to_the_group(tmp_path: Path, set_umask: SetUmask) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2770)
    set_umask(0o007)
    run_index(tmp_path / "shared")
    assert read_mode(tmp_path / "shared") == 0o2770
    assert read_modes(tmp_path / "shared") == {True: {0o2770}, False: {0o660}}


def test_what_a_store_holds_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_umask: SetUmask) -> None:
    stage_dir = run_index(tmp_path / "run")
    store = StageStore(StorageConfig(uri=f"file://{tmp_path}/store"))
    store.push(tmp_path / "run", "index")
    store.pull("index", tmp_path / "other")
    assert (read_mode(tmp_path / "store"), read_mode(tmp_path / "other")) == (0o700, 0o700)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    artifacts.write_json(tmp_path / "weights" / "config.json", {})
    copy = Path(model_folder.resolve_model(f"file://{tmp_path}/weights"))
    assert (copy / "config.json").exists()
    assert read_mode(copy.parent) == 0o700

    node_dir = open_own_folder(tmp_path / "node")
    copy_to_node(stage_dir / "search_index", node_dir)
    assert read_mode(node_dir) == 0o700


def test_a_folder_of_a_node_that_somebody_else_has_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_own_folder(tmp_path)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match=r"another user owns it.*Choose another place"):
        open_own_folder(tmp_path)
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    (tmp_path / f"drag_ray-{other}").mkdir()
    with pytest.raises(ArtifactError, match=r"another user owns it"):
        open_own_folder(tmp_path)


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
