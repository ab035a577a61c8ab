"""Finished stages in an object store: sent manifest last, fetched whole or not at all. The store is a folder by its URI."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from drag_ray.cli.main import main
from drag_ray.config import load
from drag_ray.errors import ArtifactError, ConfigError, DamageError, StorageError
from drag_ray.pipeline import runner
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_stage
from drag_ray.pipeline.stages import STAGES
from drag_ray.stage_runs.damage import verify_stage
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.stage_runs.store import StageStore
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity, read_manifest
from drag_ray.storage.object_store import ObjectStore, StorageConfig, check_uri

FILES = {"trajectories/part-0.parquet": b"a" * 3000, "trajectories/part-1.parquet": b"b" * 3000, "problems.jsonl": b""}


def write_stage(run_dir: Path, address: str, files: dict[str, bytes] = FILES, **origin: Any) -> Path:
    stage_dir = run_dir / address
    with StageFolder(stage_dir, Identity(address, {"files": sorted(files)}, {}, address=address, **origin)) as folder:
        for name, data in files.items():
            (stage_dir / name).parent.mkdir(parents=True, exist_ok=True)
            (stage_dir / name).write_bytes(data)
        folder.finish({"files": len(files)})
    return stage_dir


def read_files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store/runs/mine"


@pytest.fixture
def store(uri: str) -> StageStore:
    return StageStore(StorageConfig(uri=uri, connections=4))


def test_what_is_pulled_is_what_was_pushed_file_by_file(store: StageStore, tmp_path: Path) -> None:
    write_stage(tmp_path / "a", "collect")
    pushed = store.push(tmp_path / "a", "collect")
    assert pushed is not None
    assert pushed.num_files == len(FILES) + 1  # with identity.json
    pulled = store.pull("collect", tmp_path / "b")
    assert pulled is not None
    assert (pulled.num_files, pulled.num_bytes) == (pushed.num_files, pushed.num_bytes)
    assert read_files(tmp_path / "a" / "collect") == read_files(tmp_path / "b" / "collect")
    assert verify_stage(tmp_path / "b" / "collect")[0] == pushed.num_files
    assert [path.name for path in (tmp_path / "b").iterdir() if not path.name.endswith(".lock")] == ["collect"]
    assert store.push(tmp_path / "a", "collect") is store.pull("collect", tmp_path / "b") is None


def test_files_that_are_there_are_not_sent_again(store: StageStore, tmp_path: Path) -> None:
    write_stage(tmp_path / "a", "collect")
    store.push(tmp_path / "a", "collect")
    more = FILES | {"trajectories/part-2.parquet": b"c" * 500, "copy.bin": FILES["trajectories/part-0.parquet"]}
    write_stage(tmp_path / "a", "collect", more)
    again = store.push(tmp_path / "a", "collect")
    assert again is not None
    assert (again.num_files, again.num_there) == (2, 3)  # the new part and identity.json


def test_a_push_that_stops_leaves_the_stage_as_it_was_there_and_goes_on(
    store: StageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before each of its writes in turn: what can be pulled is the stage before, whole, until the new one is there."""
    write_stage(tmp_path / "a", "collect", {"first.bin": b"1"})
    store.push(tmp_path / "a", "collect")
    first = read_files(tmp_path / "a" / "collect")
    write_stage(tmp_path / "a", "collect")
    send, write = ObjectStore.send, ObjectStore.write
    lock = threading.Lock()
    num_sent = 0
    for limit in range(6):
        calls = 0

        def stop(method: Any, *arguments: Any, limit: int = limit) -> None:
            nonlocal calls, num_sent
            with lock:
                calls += 1
                if calls > limit:
                    raise StorageError("the line is cut")
                num_sent += method is send
            method(*arguments)

        with monkeypatch.context() as cut:
            cut.setattr(ObjectStore, "send", lambda *arguments: stop(send, *arguments))
            cut.setattr(ObjectStore, "write", lambda *arguments: stop(write, *arguments))
            with pytest.raises(StorageError, match="cut"):
                store.push(tmp_path / "a", "collect")
        store.pull("collect", tmp_path / f"b{limit}")
        assert read_files(tmp_path / f"b{limit}" / "collect") == first
        if num_sent == len(FILES) + 1:
            break
    assert num_sent == len(FILES) + 1  # in all tries together: none twice
    store.push(tmp_path / "a", "collect")
    store.pull("collect", tmp_path / "b")
    assert read_files(tmp_path / "b" / "collect") == read_files(tmp_path / "a" / "collect")


def test_a_pull_that_stops_leaves_nothing_that_could_be_taken_for_a_stage_and_goes_on(
    store: StageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stage(tmp_path / "a", "collect")
    store.push(tmp_path / "a", "collect")
    fetch = ObjectStore.fetch
    fetched: list[str] = []

    def fetch_two(objects: ObjectStore, key: str, *arguments: Any) -> None:
        if len(fetched) >= 2:
            raise StorageError("the line is cut")
        fetch(objects, key, *arguments)
        fetched.append(key)

    one_by_one = StageStore(StorageConfig(uri=f"file://{tmp_path}/store/runs/mine", connections=1))
    with monkeypatch.context() as cut:
        cut.setattr(ObjectStore, "fetch", fetch_two)
        with pytest.raises(StorageError, match="cut"):
            one_by_one.pull("collect", tmp_path / "b")
    assert read_manifest(tmp_path / "b" / "collect") is None
    assert not (tmp_path / "b" / "collect").exists()
    pulled = store.pull("collect", tmp_path / "b")
    assert pulled is not None
    assert (pulled.num_files, pulled.num_there) == (2, 2)
    assert read_files(tmp_path / "b" / "collect") == read_files(tmp_path / "a" / "collect")


def test_pushes_at_the_same_time_to_one_place_do_not_mix(store: StageStore, uri: str, tmp_path: Path) -> None:
    runs = {name: FILES | {"own.bin": name.encode() * 1000} for name in ("a", "b", "c")}
    for name, files in runs.items():
        write_stage(tmp_path / name, "collect", files)
    threads = [threading.Thread(target=store.push, args=(tmp_path / name, "collect")) for name in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.pull("collect", tmp_path / "pulled")
    verify_stage(tmp_path / "pulled" / "collect")
    assert read_files(tmp_path / "pulled" / "collect") in [read_files(tmp_path / name / "collect") for name in runs]
    # The others are still known by their manifests.
    manifests = Path(uri.removeprefix("file://"), "stages", "collect", "manifests")
    assert {path.stem for path in manifests.iterdir()} == {
        artifacts.require_manifest(tmp_path / name / "collect").outcome_fingerprint for name in runs
    }


def test_what_is_not_as_it_was_written_is_not_pushed(store: StageStore, tmp_path: Path) -> None:
    stage_dir = write_stage(tmp_path / "a", "collect")
    (stage_dir / "trajectories" / "part-0.parquet").write_bytes(b"z" * 3000)
    with pytest.raises(DamageError, match=r"part-0\.parquet: holds other bytes"):
        store.push(tmp_path / "a", "collect")
    assert store.list_addresses() == []


def test_a_file_that_changes_while_it_is_sent_leaves_nothing_in_the_store(uri: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"changed")
    with pytest.raises(DamageError, match="is not sent"):
        ObjectStore(uri).send(tmp_path / "file", "objects/aa/key", "0" * 64)
    assert ObjectStore(uri).measure("objects/aa/key") is None


def test_what_was_changed_in_the_store_is_not_pulled(store: StageStore, uri: str, tmp_path: Path) -> None:
    write_stage(tmp_path / "a", "collect")
    store.push(tmp_path / "a", "collect")
    root = Path(uri.removeprefix("file://"))
    pushed = [path for path in root.rglob("*") if path.is_file() and path.stat().st_size and "manifests" not in path.parts]
    for path in pushed:
        kept = path.read_bytes()
        for number, damage in enumerate((b"x" + kept[1:], kept[:-2], kept + b"more")):
            path.write_bytes(damage)
            run_dir = tmp_path / f"{path.name}-{number}"
            with pytest.raises(DamageError):
                store.pull("collect", run_dir)
            assert not (run_dir / "collect").exists()
        path.write_bytes(kept)
    store.pull("collect", tmp_path / "b")


@pytest.mark.parametrize(
    "path", ["../../out", "/tmp/out", "a/../../out", ".lock", "a/.hidden", "manifest.json", "a//b", "", "a\0b", "checksums.jsonl"]
)
def test_a_list_that_leads_out_of_the_stage_is_refused(store: StageStore, uri: str, tmp_path: Path, path: str) -> None:
    """By who can write to the store, and so can make a list and a manifest that agree."""
    stage_dir = write_stage(tmp_path / "a", "collect")
    store.push(tmp_path / "a", "collect")
    entry = {"path": path, "bytes": 1, "sha256": "0" * 64}
    text = (stage_dir / "checksums.jsonl").read_text() + json.dumps(entry) + "\n"
    digest = artifacts.compute_bytes_fingerprint(text.encode())
    record = json.loads((stage_dir / "manifest.json").read_text()) | {"checksums": digest}
    record.pop("sha256")
    root = Path(uri.removeprefix("file://"))
    (root / "lists" / f"{digest}.jsonl").write_text(text)
    hashed = json.dumps(record | {"sha256": artifacts.compute_fingerprint(record)})
    (root / "stages" / "collect" / "manifest.json").write_text(hashed)
    with pytest.raises(DamageError, match="is no file of a stage"):
        store.pull("collect", tmp_path / "b")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("address", ["../collect", "/etc", "", "a/../b", ".."])
def test_an_address_that_leads_out_of_the_run_is_refused(store: StageStore, tmp_path: Path, address: str) -> None:
    with pytest.raises(StorageError, match="is no stage of a run"):
        store.pull(address, tmp_path / "b")


def test_a_stage_of_other_work_is_not_written_over(store: StageStore, tmp_path: Path) -> None:
    write_stage(tmp_path / "a", "collect")
    store.push(tmp_path / "a", "collect")
    other = write_stage(tmp_path / "b", "collect", {"other.bin": b"other"})
    before = read_files(other)
    with pytest.raises(ArtifactError, match="holds other work"):
        store.pull("collect", tmp_path / "b")
    assert read_files(other) == before
    with pytest.raises(StorageError, match=r"no finished stage finetune\. It has collect"):
        store.pull("finetune", tmp_path / "b")


@pytest.mark.parametrize(
    "uri",
    [
        *("", "runs/mine", "http://host/x", "s3://", "memory://x"),
        *("s3://key:secret@bucket/x", "s3://key@bucket/x", "abfs://container:secret@account/x", "file://user:secret@/x"),
        *("s3://bucket/x?secret_key=secret", "abfs://c@a/x?account_key=secret", "s3://bucket/x#secret"),
    ],
)
def test_a_uri_that_is_none_or_holds_a_key_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_uri(uri)
    assert "secret" not in str(caught.value)
    if uri:
        with pytest.raises(ConfigError) as caught:
            load(RunConfig, ["--storage.uri", uri])
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "uri", ["s3://bucket/x?region=eu-west-1", "gs://bucket", "gs://anonymous@bucket/x", "abfs://container@account/x", "file:///x"]
)
def test_uris_of_the_stores_are_taken(uri: str) -> None:
    assert load(RunConfig, ["--storage.uri", uri]).storage.uri == uri


def configure(run_dir: Path, uri: str, *options: str) -> RunConfig:
    return load(RunConfig, ["--run-dir", str(run_dir), "--storage.uri", uri, *options])


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stages that write what they have read; the names of those that have run."""
    ran: list[str] = []

    def run(stage: Any, sections: Any, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
        read = {name: (path / "out.txt").read_text() for name, path in inputs.folders.items() if path}
        (folder.path / "out.txt").write_text(f"{stage.name} of {sorted(read)}")
        ran.append(stage.name)
        return {"files": 1}

    monkeypatch.setattr(runner.Stage, "run", run)
    return ran


LOOP = ("index", "collect", "process", "format", "finetune")


@pytest.mark.seconds
def test_a_run_goes_on_in_an_empty_folder_with_what_was_pushed(loop: list[str], uri: str, tmp_path: Path) -> None:
    for name in LOOP[:3]:
        run_stage(STAGES[name], configure(tmp_path / "a", uri))
    assert loop == list(LOOP[:3])
    for name in LOOP:
        run_stage(STAGES[name], configure(tmp_path / "b", uri))
    assert loop == list(LOOP)  # each once
    # One stage alone fetches what it reads, and what that was made from.
    run_stage(STAGES["finetune"], configure(tmp_path / "c", uri))
    assert loop == list(LOOP)
    assert sorted(path.name for path in (tmp_path / "c").iterdir() if path.is_dir()) == sorted(LOOP)


def test_other_options_do_the_stage_anew_and_leave_what_was_pushed_before(loop: list[str], uri: str, tmp_path: Path) -> None:
    run_stage(STAGES["index"], configure(tmp_path / "a", uri))
    run_stage(STAGES["index"], configure(tmp_path / "b", uri, "--search.operator", "and"))
    assert loop == ["index", "index"]
    assert len(list(Path(uri.removeprefix("file://"), "stages", "index", "manifests").iterdir())) == 2


def test_a_stage_that_could_not_be_sent_is_sent_when_it_is_started_again(
    loop: list[str], uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise StorageError("full")

    with monkeypatch.context() as cut:
        cut.setattr(ObjectStore, "send", refuse)
        with pytest.raises(StorageError, match="full"):
            run_stage(STAGES["index"], configure(tmp_path / "a", uri))
    run_stage(STAGES["index"], configure(tmp_path / "a", uri))  # finished, so nothing runs
    assert StageStore(StorageConfig(uri=uri)).list_addresses() == ["index"]


def test_push_and_pull_by_command(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_stage(tmp_path / "a", "index")
    index = artifacts.require_manifest(tmp_path / "a" / "index")
    dpo = write_stage(tmp_path / "a", "finetune/dpo", {"adapter/weights.bin": b"w"}, reads={"index": "index"})
    record = json.loads((dpo / "manifest.json").read_text())
    assert record["stage"] == "finetune/dpo"
    assert main(["push", str(tmp_path / "a"), uri]) == 0
    assert "finetune/dpo: 2 files" in capsys.readouterr().out
    assert main(["pull", uri, str(tmp_path / "b"), "--stages", "finetune/dpo"]) == 0
    assert main(["pull", uri, str(tmp_path / "b")]) == 0
    assert "finetune/dpo: is there" in capsys.readouterr().out
    assert read_manifest(tmp_path / "b" / "index") == index
    assert main(["pull", f"{uri}/nothing", str(tmp_path / "c")]) == 1
    assert main(["push", str(tmp_path / "a"), "s3://key:hidden@bucket/x"]) == 2
    assert "hidden" not in capsys.readouterr().err
