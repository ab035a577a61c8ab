"""Finished stages in an object store: sent manifest last, fetched whole or not at all. The store is a folder by its URI."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partialmethod
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
from drag_ray.stage_runs.store import StageStore, Transfer
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import MANIFEST_NAME, Identity, read_manifest
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
def store(uri: str, monkeypatch: pytest.MonkeyPatch) -> StageStore:
    monkeypatch.setattr("drag_ray.stage_runs.store.CONNECTIONS", 1)  # files are sent in their order
    return StageStore(StorageConfig(uri=uri))


@pytest.fixture
def pushed(store: StageStore, tmp_path: Path) -> Path:
    """A finished stage, in the run `a`, that is in the store too."""
    stage_dir = write_stage(tmp_path / "a", "collect")
    store.push(tmp_path / "a", "collect")
    return stage_dir


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Lets as many files through as `left` says, any number where it is None; `moved` are those that went through."""
    line: dict[str, Any] = {"left": None, "moved": []}

    def move(objects: ObjectStore, method: Any, *arguments: Any) -> Any:
        if line["left"] == 0:
            raise StorageError("the line is cut")
        line["left"] = line["left"] and line["left"] - 1
        line["moved"].append(str(arguments[0]))
        return method(objects, *arguments)

    for name in ("send", "fetch"):
        monkeypatch.setattr(ObjectStore, name, partialmethod(move, getattr(ObjectStore, name)))
    return line


def test_what_is_pulled_is_what_was_pushed_file_by_file(store: StageStore, uri: str, pushed: Path, tmp_path: Path) -> None:
    num_files, num_bytes = verify_stage(pushed)
    assert store.pull("collect", tmp_path / "b") == Transfer(num_files, num_bytes, 0)
    [in_store] = Path(uri.removeprefix("file://"), "files", "collect").iterdir()
    assert read_files(tmp_path / "b" / "collect") == read_files(pushed) == read_files(in_store)
    assert [path.name for path in (tmp_path / "b").iterdir() if not path.name.endswith(".lock")] == ["collect"]
    assert store.push(tmp_path / "a", "collect") is store.pull("collect", tmp_path / "b") is None


def test_a_push_that_stops_leaves_the_stage_as_it_was_there_and_goes_on(
    store: StageStore, pushed: Path, tmp_path: Path, cut: dict[str, Any]
) -> None:
    """Stopped after each of its files in turn: what can be pulled is the stage before, whole, until the new one is there."""
    first = read_files(pushed)
    new = read_files(write_stage(tmp_path / "a", "collect", {name: data + b"more" for name, data in FILES.items()}))
    for number in range(len(FILES) + 3):  # with identity.json, the list and the manifest
        cut["left"] = number and 1
        with pytest.raises(StorageError, match="cut"):
            store.push(tmp_path / "a", "collect")
        cut["left"] = None
        store.pull("collect", tmp_path / f"b{number}")
        assert read_files(tmp_path / f"b{number}" / "collect") == first
    sent = [Path(name).relative_to(pushed).as_posix() for name in cut["moved"] if name.startswith(str(pushed))]
    assert sorted(sent[: len(FILES) + 1]) == sorted((*FILES, "identity.json"))  # in all tries together: none twice
    store.push(tmp_path / "a", "collect")
    store.pull("collect", tmp_path / "b")
    assert read_files(tmp_path / "b" / "collect") == new


def test_a_pull_that_stops_leaves_nothing_that_could_be_taken_for_a_stage_and_goes_on(
    store: StageStore, pushed: Path, tmp_path: Path, cut: dict[str, Any]
) -> None:
    cut["left"] = 2
    with pytest.raises(StorageError, match="cut"):
        store.pull("collect", tmp_path / "b")
    assert not (tmp_path / "b" / "collect").exists()
    cut["left"] = None
    pulled = store.pull("collect", tmp_path / "b")
    assert pulled is not None
    assert (pulled.num_files, pulled.num_there) == (2, 2)
    assert read_files(tmp_path / "b" / "collect") == read_files(pushed)


def test_of_a_stage_that_has_changed_the_changes_are_sent(store: StageStore, uri: str, pushed: Path, tmp_path: Path) -> None:
    write_stage(tmp_path / "a", "collect", FILES | {"trajectories/part-0.parquet": b"c" * 500})
    assert store.push(tmp_path / "a", "collect") == Transfer(1, 500, 3)
    store.pull("collect", tmp_path / "b")
    assert read_files(tmp_path / "b" / "collect") == read_files(pushed)
    assert len(list(Path(uri.removeprefix("file://"), "files", "collect").iterdir())) == 2  # the earlier one is still there


def test_pushes_at_the_same_time_to_one_place_do_not_mix(store: StageStore, tmp_path: Path) -> None:
    runs = {name: FILES | {"own.bin": name.encode() * 1000} for name in ("a", "b", "c")}
    written = [read_files(write_stage(tmp_path / name, "collect", files)) for name, files in runs.items()]
    with ThreadPoolExecutor() as threads:
        assert len(list(threads.map(lambda name: store.push(tmp_path / name, "collect"), runs))) == 3
    store.pull("collect", tmp_path / "pulled")
    assert read_files(tmp_path / "pulled" / "collect") in written


def test_what_is_not_as_it_was_written_is_not_pushed(store: StageStore, tmp_path: Path) -> None:
    stage_dir = write_stage(tmp_path / "a", "collect")
    (stage_dir / "trajectories" / "part-0.parquet").write_bytes(b"z" * 3000)
    with pytest.raises(DamageError, match=r"part-0\.parquet: holds other bytes"):
        store.push(tmp_path / "a", "collect")
    assert store.list_addresses() == []


def test_what_was_changed_in_the_store_can_be_pushed_again(store: StageStore, uri: str, pushed: Path, tmp_path: Path) -> None:
    root = Path(uri.removeprefix("file://"))
    [folder] = (root / "files" / "collect").iterdir()
    read = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size and path.name != MANIFEST_NAME]
    for path in (*read, root / "stages" / "collect" / MANIFEST_NAME):
        kept = path.read_bytes()
        for number, damage in enumerate((b"x" + kept[1:], kept[:-2], kept + b"more")):
            path.write_bytes(damage)
            run_dir = tmp_path / f"{path.name}-{number}"
            with pytest.raises(DamageError, match=f"run: drag-ray push RUN {uri}"):
                store.pull("collect", run_dir)
            assert not (run_dir / "collect").exists()
        path.write_bytes(kept)
    shutil.rmtree(folder)  # as in a store of an earlier version
    with pytest.raises(DamageError, match=f"earlier version.* run: drag-ray push RUN {uri}"):
        store.pull("collect", tmp_path / "b")
    store.push(tmp_path / "a", "collect")
    store.pull("collect", tmp_path / "b")


def forge(uri: str, stage_dir: Path, entry: dict[str, Any] | None = None, **changes: Any) -> None:
    """Forge a stage in the store, as somebody who can write to it may do: a list and a manifest that agree."""
    root, record = Path(uri.removeprefix("file://")), json.loads((stage_dir / MANIFEST_NAME).read_text()) | changes
    if entry is not None:
        text = (stage_dir / "checksums.jsonl").read_text() + json.dumps(entry) + "\n"
        record["checksums"] = artifacts.compute_bytes_fingerprint(text.encode())
        artifacts.write_text(root / "files" / "collect" / record["checksums"] / "checksums.jsonl", text)
    record.pop("sha256")
    hashed = record | {"sha256": artifacts.compute_fingerprint(record)}
    artifacts.write_json(root / "stages" / "collect" / MANIFEST_NAME, hashed)


@pytest.mark.parametrize(
    "path",
    [
        *("../../out", "/tmp/out", "a/../../out", "..", ".lock", "a/.hidden", "a//b", "a/", "a\0b", "", ["a"], None),
        *("manifest.json", "checksums.jsonl", "identity.json"),
    ],
)
def test_a_list_that_leads_elsewhere_is_refused(store: StageStore, uri: str, pushed: Path, tmp_path: Path, path: Any) -> None:
    forge(uri, pushed, {"path": path, "bytes": 1, "sha256": "0" * 64})
    with pytest.raises(DamageError, match="not a list of files"):
        store.pull("collect", tmp_path / "b")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "changes", [{"origin": ["a"]}, {"origin": {"reads": {"index": 1}}}, {"checksums": "../../x"}, {"stage": "../collect"}]
)
def test_a_forged_manifest_is_refused(store: StageStore, uri: str, pushed: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    forge(uri, pushed, **changes)
    with pytest.raises(DamageError, match="not a manifest"):
        store.pull("collect", tmp_path / "b")


def test_a_stage_that_was_made_from_itself_is_fetched_once(store: StageStore, uri: str, pushed: Path, tmp_path: Path) -> None:
    outcome = artifacts.require_manifest(pushed).outcome_fingerprint
    forge(uri, pushed, origin={"reads": {"collect": "collect"}, "inputs": {"collect": outcome}})
    assert list(store.pull_lineage("collect", tmp_path / "b")) == ["collect"]


@pytest.mark.parametrize("address", ["../collect", "/etc", "", "a/../b", ".."])
def test_an_address_that_leads_out_of_the_run_is_refused(store: StageStore, tmp_path: Path, address: str) -> None:
    with pytest.raises(StorageError, match="is no stage of a run"):
        store.pull(address, tmp_path / "b")


@pytest.mark.usefixtures("pushed")
def test_a_stage_of_other_work_is_not_written_over(store: StageStore, tmp_path: Path) -> None:
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


def test_a_stage_that_could_not_be_sent_is_sent_later(loop: list[str], uri: str, tmp_path: Path, cut: dict[str, Any]) -> None:
    cut["left"] = 0
    with pytest.raises(StorageError, match="cut"):
        run_stage(STAGES["index"], configure(tmp_path / "a", uri))
    cut["left"] = None
    run_stage(STAGES["index"], configure(tmp_path / "a", uri))  # finished, so nothing runs
    assert StageStore(StorageConfig(uri=uri)).list_addresses() == ["index"]


def test_push_and_pull_by_command(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_stage(tmp_path / "a", "index")
    index = artifacts.require_manifest(tmp_path / "a" / "index")
    dpo = write_stage(tmp_path / "a", "finetune/dpo", {"adapter/weights.bin": b"w"}, reads={"index": "index"})
    record = json.loads((dpo / "manifest.json").read_text())
    assert record["stage"] == "finetune/dpo"
    assert main(["push", str(tmp_path / "a"), uri]) == 0
    assert f"finetune/dpo: pushed to {uri}: 2 files" in capsys.readouterr().out
    assert main(["pull", uri, str(tmp_path / "b"), "--stages", "finetune/dpo"]) == 0
    assert main(["pull", uri, str(tmp_path / "b")]) == 0
    assert "finetune/dpo: is there" in capsys.readouterr().out
    assert read_manifest(tmp_path / "b" / "index") == index
    assert main(["pull", f"{uri}/nothing", str(tmp_path / "c")]) == 1
    assert main(["push", str(tmp_path / "a"), "s3://key:hidden@bucket/x"]) == 2
    assert "hidden" not in capsys.readouterr().err
