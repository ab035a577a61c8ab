"""Stages in a store that speaks S3 (moto's server, over HTTP), with Arrow's own client."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import make_place, serve_s3

from drag_ray.errors import DataError, StorageError
from drag_ray.stage_runs.damage import verify_stage
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.store import StageStore, Transfer
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity
from drag_ray.storage.object_store import ObjectStore, StorageConfig, fetch_files

LARGE = bytes(range(256)) * 48 * 2**12  # 48 MiB: sent in parts


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve_s3() as address:
        yield address


@pytest.fixture
def uri(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return make_place(address, tmp_path.name.replace("_", "-")[-60:].strip("-"), monkeypatch)


def write_stage(run_dir: Path, *others: int) -> None:
    with StageFolder(run_dir / "collect", Identity("collect", {}, {})) as folder:
        artifacts.write_bytes(folder.path / "trajectories" / "part.parquet", LARGE)
        for number in (*range(12), *others):
            artifacts.write_text(folder.path / f"{number}.json", f"{number}\n")
        folder.finish({"files": 13 + len(others)})


def test_a_stage_goes_through_s3_whole_and_its_files_are_sent_once(uri: str, tmp_path: Path) -> None:
    write_stage(tmp_path / "a")
    store = StageStore(StorageConfig(uri=uri))
    pushed = store.push(tmp_path / "a", "collect")
    assert pushed is not None
    assert (pushed.num_files, pushed.num_there) == (14, 0)
    assert store.list_addresses() == ["collect"]
    write_stage(tmp_path / "a", 12)
    again = store.push(tmp_path / "a", "collect")
    assert again == Transfer(1, len("12\n"), 14)  # the store itself has copied the others
    assert store.push(tmp_path / "a", "collect") is None
    store.pull("collect", tmp_path / "b")
    assert verify_stage(tmp_path / "b" / "collect")[0] == 15
    assert (tmp_path / "b" / "collect" / "trajectories" / "part.parquet").read_bytes() == LARGE


def test_documents_are_copied_as_they_lie_there_and_not_twice(uri: str, tmp_path: Path) -> None:
    def put(key: str, text: str) -> None:
        artifacts.write_text(tmp_path / "file", text)
        store.send(tmp_path / "file", key)

    store, folder = ObjectStore(uri), tmp_path / "copies"
    for key in ("wing.txt", "sub/flap.txt", ".hidden", "sub/.hidden/x.txt"):
        put(key, key)
    assert fetch_files(uri, folder) == folder
    found = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert found == {name: name for name in ("wing.txt", "sub/flap.txt")}
    inodes = [path.stat().st_ino for path in sorted(folder.rglob("*.txt"))]
    fetch_files(uri, folder)
    assert [path.stat().st_ino for path in sorted(folder.rglob("*.txt"))] == inodes
    put("wing.txt", "longer than it was")
    fetch_files(uri, folder)
    assert (folder / "wing.txt").read_bytes() == b"longer than it was"
    one = fetch_files(uri.replace("/mine", "/mine/sub/flap.txt"), tmp_path / "one")
    assert (one.name, one.read_text()) == ("flap.txt", "sub/flap.txt")
    with pytest.raises(DataError, match="nothing lies there"):
        fetch_files(uri.replace("/mine", "/other"), tmp_path / "none")


def test_a_bucket_that_is_not_there_is_named_and_no_key_is(uri: str, tmp_path: Path) -> None:
    write_stage(tmp_path / "a")
    elsewhere = uri.replace("s3://", "s3://no-such-")
    with pytest.raises(StorageError, match="no-such-") as caught:
        StageStore(StorageConfig(uri=elsewhere)).push(tmp_path / "a", "collect")
    assert "of-a-test" not in str(caught.value)
