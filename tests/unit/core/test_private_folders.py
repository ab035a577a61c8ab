"""Folders with private pages: their owner alone can open them, unless somebody made them for others beforehand."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drag_ray import schemas
from drag_ray.engine.config import EndpointConfig
from drag_ray.engine.endpoints.spending import Spending
from drag_ray.engine.generate import Usage
from drag_ray.engine.models import model_folder
from drag_ray.errors import ArtifactError
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.node_copy import copy_to_node
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.store import StageStore
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity
from drag_ray.storage.file_access import open_own_folder
from drag_ray.storage.new_folder import new_folder
from drag_ray.storage.object_store import StorageConfig
from drag_ray.types import Page

SetUmask = Callable[[int], None]


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


def test_what_a_store_holds_and_what_is_fetched_from_it_are_their_owners_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_umask: SetUmask
) -> None:
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


def test_what_is_written_into_a_new_folder_is_its_owners_alone(tmp_path: Path, set_umask: SetUmask) -> None:
    with new_folder(tmp_path / "sessions", "") as scratch:
        (scratch / "1.json").write_text("{}")
        scratch.chmod(0o755)
    assert read_mode(tmp_path / "sessions") == 0o700


def test_a_folder_of_a_node_that_somebody_else_has_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_own_folder(tmp_path)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match=r"somebody else has made it.*Name another place"):
        open_own_folder(tmp_path)
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    (tmp_path / f"drag_ray-{other}").mkdir()
    with pytest.raises(ArtifactError, match=r"somebody else has made it"):
        open_own_folder(tmp_path)
