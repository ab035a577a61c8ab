"""Stage folders: whole or absent files, manifests, resuming and setting aside."""

import errno
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from drag_ray import schemas
from drag_ray.errors import ArtifactError, DataError
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity
from drag_ray.storage.checksums import Damage
from drag_ray.types import Page


def identity(value: int = 1) -> Identity:
    return Identity("collect", {"value": value}, {"index": "abc"})


def test_a_failed_write_leaves_the_old_file_and_no_scraps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "table.parquet"
    artifacts.write_text(target, "old")

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(artifacts.pq, "write_table", fail)
    with pytest.raises(ArtifactError, match=r"No space left on device.*Free some space"):
        artifacts.write_parquet(target, pa.table({"a": [1]}))
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_is_finished_only_with_its_manifest(tmp_path: Path) -> None:
    folder = StageFolder(tmp_path / "collect", identity())
    with folder:
        artifacts.write_text(folder.path / "data", "x")
    assert not folder.is_finished()
    with pytest.raises(ArtifactError, match="has not finished"):
        artifacts.require_manifest(folder.path)
    with folder:
        assert folder.resumed
        folder.finish({"rows": 3})
    assert folder.is_finished()
    assert artifacts.require_manifest(folder.path).counts == {"rows": 3}


def test_what_is_set_aside_within_a_second_is_kept_apart(tmp_path: Path) -> None:
    for number in range(4):
        with StageFolder(tmp_path / "collect", identity(number % 2)) as folder:
            artifacts.write_text(folder.path / "data", str(number))
    kept = sorted((previous / "data").read_text() for previous in (tmp_path / "_previous").iterdir())
    assert kept == ["0", "1", "2"]


def end(*arguments: object) -> None:
    raise KeyboardInterrupt


def finish(path: Path, number: int) -> StageFolder:
    with StageFolder(path, identity(number), keeps_earlier=True) as folder:
        artifacts.write_text(folder.path / "data", str(number))
        folder.finish({"rows": number})
    return folder


def test_finished_work_that_was_killed_between_the_places_takes_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "collect"
    assert finish(place, 1).earlier is None
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", end)  # when the place is empty
        with pytest.raises(KeyboardInterrupt):
            finish(place, 2)
    assert not place.exists()
    assert StageFolder(place, identity(2), keeps_earlier=True).is_finished()
    assert (place / "data").read_text() == "2"
    assert finish(place, 3).earlier == place
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["_previous", "collect"]


def test_finished_work_that_was_killed_before_it_had_its_place_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "collect"
    finish(place, 1)
    with monkeypatch.context() as patched:
        patched.setattr(StageFolder, "_give_place", end)
        with pytest.raises(KeyboardInterrupt):
            finish(place, 2)
    assert (place / "data").read_text() == "1"
    third = StageFolder(place, identity(3), keeps_earlier=True)
    assert third.earlier == place
    assert (place / "data").read_text() == "2"
    assert StageFolder(place, identity(2), keeps_earlier=True).is_finished()


def test_two_starts_that_end_an_exchange_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "collect"
    finish(place, 1)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", end)
        with pytest.raises(KeyboardInterrupt):
            finish(place, 2)
    take_lock = StageFolder._take_lock  # pyright: ignore[reportPrivateUsage]

    def come_later(folder: StageFolder) -> None:
        monkeypatch.setattr(StageFolder, "_take_lock", take_lock)
        assert StageFolder(place, identity(2), keeps_earlier=True).is_finished()  # the other start
        take_lock(folder)

    monkeypatch.setattr(StageFolder, "_take_lock", come_later)
    assert StageFolder(place, identity(2), keeps_earlier=True).is_finished()
    assert (place / "data").read_text() == "2"


def test_work_in_a_place_and_beside_it_is_that_of_one_run_at_a_time(tmp_path: Path) -> None:
    finish(tmp_path / "collect", 1)
    beside = StageFolder(tmp_path / "collect", identity(2), keeps_earlier=True)
    in_place = StageFolder(tmp_path / "collect", identity(2), [Damage("data", "is missing")], keeps_earlier=True)
    with beside, pytest.raises(ArtifactError, match="another run is writing this folder"), in_place:
        pass


def test_an_outcome_is_the_same_by_any_way(tmp_path: Path) -> None:
    outcomes = set[str]()
    for kept, rows in ((0, 5), (3, 5), (3, 6)):
        own = replace(identity(), way_counts=("kept",))
        with StageFolder(tmp_path / f"{kept}-{rows}", own) as folder:
            outcomes.add(folder.finish({"kept": kept, "rows": rows}).outcome_fingerprint)
    assert len(outcomes) == 2


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were brought to the disk, in order, by the names that they had then."""
    paths: list[Path] = []
    fsync = os.fsync

    def sync_and_note(handle: int) -> None:
        paths.append(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", sync_and_note)
    return paths


def test_files_and_folders_are_on_the_disk_before_what_vouches_for_them(tmp_path: Path, synced: list[Path]) -> None:
    with StageFolder(tmp_path / "collect", identity()) as folder:
        files = [folder.path / "rows" / "part.parquet", folder.path / "a" / "b" / "c.arrow"]
        for path in files:  # as libraries write them, which bring nothing to the disk
            path.parent.mkdir(parents=True)
            path.write_text("rows")
        synced.clear()
        folder.finish({})
    names = [path.name.split(".json")[0] + ".json" if ".json" in path.name else path.name for path in synced]
    vouching = names.index(".checksums.json")
    for path in (*files, folder.path / "rows", folder.path / "a", folder.path / "a" / "b", folder.path):
        assert path in synced[:vouching]
    assert names[vouching:] == [".checksums.json", "collect", ".manifest.json", "collect"]


def test_the_files_of_an_index_are_on_the_disk_before_it_has_its_name(tmp_path: Path, synced: list[Path]) -> None:
    pages = [Page("a.pdf", number, 2, "rotor") for number in (1, 2)]
    artifacts.write_parquet(tmp_path / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(tmp_path / "pages.parquet", tmp_path / "index", SearchConfig())
    vouching = next(number for number, path in enumerate(synced) if path.name.startswith(".checksums"))
    names = {path.name for path in synced[:vouching]}
    written = {path.name for path in (tmp_path / "index").rglob("*") if not path.name.startswith((".", "checksums"))}
    assert {"pages.arrow", "meta.json", "tantivy"} <= written <= names | {"index.json"}
    assert any(path.name.startswith(".index.json") for path in synced[:vouching])


def test_what_a_killed_writer_leaves_is_gone_when_the_stage_goes_on(tmp_path: Path) -> None:
    with StageFolder(tmp_path / "collect", identity()) as folder:
        with artifacts.whole_or_absent(folder.path / "rows" / "part.parquet") as scratch:
            left_behind = scratch.with_name(f".part.parquet.killed{scratch.suffix}")
            left_behind.write_text("half")
            scratch.write_text("whole")
        assert left_behind.exists()
    with StageFolder(tmp_path / "collect", identity()) as folder:
        assert folder.resumed
        assert [path.name for path in (folder.path / "rows").iterdir()] == ["part.parquet"]


def test_a_run_that_cannot_be_written_or_read_is_named_with_what_to_run(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the run's folder should be")
    with (
        pytest.raises(ArtifactError, match=r"run: cannot be written \(.*choose another --run-dir"),
        StageFolder(tmp_path / "run" / "collect", identity()),
    ):
        pass
    artifacts.write_text(tmp_path / "collect" / artifacts.MANIFEST_NAME, '{"stage": ')
    with pytest.raises(ArtifactError, match=r"not a manifest.*Run: python jobs/collect\.py"):
        artifacts.read_manifest(tmp_path / "collect")


@pytest.mark.parametrize("change", [{"config": {"value": 2}}, {"inputs": {"index": "other"}}, {"version": 2}])
def test_options_inputs_and_version_make_the_identity(change: dict) -> None:
    fields = {"stage": "collect", "config": {"value": 1}, "inputs": {"index": "abc"}, "version": 1}
    assert Identity(**fields).fingerprint == identity().fingerprint
    assert Identity(**{**fields, **change}).fingerprint != identity().fingerprint


def hold(path: Path, entered: object, leave: object) -> None:
    with StageFolder(path, identity()):
        entered.set()  # type: ignore[attr-defined]
        leave.wait(30)  # type: ignore[attr-defined]


@pytest.mark.seconds
def test_two_runs_cannot_write_one_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    entered, leave = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path / "collect", entered, leave))
    holder.start()
    assert entered.wait(30)
    with pytest.raises(ArtifactError, match="another run is writing"), StageFolder(tmp_path / "collect", identity()):
        pass
    leave.set()
    holder.join()


def test_tables_of_another_version_or_type_are_refused_by_name(tmp_path: Path) -> None:
    table = schemas.to_table([Page("a.pdf", 1, 1, "text")], schemas.PAGES)
    path = tmp_path / "pages.parquet"
    artifacts.write_parquet(path, table)
    assert schemas.from_row(Page, schemas.read_table(path, schemas.PAGES).to_pylist()[0]) == Page("a.pdf", 1, 1, "text")
    artifacts.write_parquet(path, table.set_column(1, "page_number", pa.array(["one"])))
    with pytest.raises(DataError, match=r"pages\.parquet: column 'page_number' of this pages table is string, expected int32"):
        schemas.read_table(path, schemas.PAGES)
    artifacts.write_parquet(path, table.drop_columns(["text"]))
    with pytest.raises(DataError, match="no column 'text'"):
        schemas.read_table(path, schemas.PAGES)
    artifacts.write_parquet(path, table.replace_schema_metadata({"drag_ray.schema_version": "0"}))
    with pytest.raises(DataError, match="schema version 0"):
        schemas.read_table(path, schemas.PAGES)
    artifacts.write_parquet(path, table)
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes(40) + data[44:])
    with pytest.raises(DataError, match="not a readable Parquet file"):  # its footer says nothing of it
        schemas.read_table(path, schemas.PAGES)
    path.write_text("not parquet")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        schemas.read_table(path, schemas.PAGES)
    with pytest.raises(DataError, match="no such file"):
        schemas.read_table(tmp_path / "nothing.parquet", schemas.PAGES)
