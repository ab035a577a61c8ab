"""Damage to a small finished run: each file of each stage, each kind; it is noticed, said, and done again."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import build_page, build_question, build_search, build_trajectory
from PIL import Image
from small_index import write_index

from drag_ray.cli.main import main
from drag_ray.config import load
from drag_ray.corpus.image_store import ImageStore
from drag_ray.errors import DamageError, DataError
from drag_ray.pipeline import runner
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code, run_stage, run_stages
from drag_ray.pipeline.stages import STAGES, Stage
from drag_ray.rollout import failures, journal
from drag_ray.stage_runs.damage import find_damage, refuse_damage, verify_stage
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts, checksums

NAMES = ("index", "collect", "process", "format", "finetune")
LOOP = [STAGES[name] for name in NAMES]
QUESTIONS = [build_question(id=f"q{number}", question=f"How fast is rotor {number}?") for number in range(8)]


def run_index(config: RunConfig, folder: StageFolder) -> dict[str, Any]:
    image = ImageStore(folder.path / "page_images").write(Image.new("RGB", (40, 60), "white"))
    pages = [build_page(file=f"{number}.pdf", text=f"rotor {number}", image=image) for number in range(20)]
    artifacts.write_text(folder.path / "documents" / "manual.md", "The rotor turns.")
    artifacts.write_jsonl(folder.path / "problems.jsonl", [])
    write_index(folder.path, pages, QUESTIONS)
    return {"pages": len(pages)}


def run_collect(config: RunConfig, folder: StageFolder) -> dict[str, Any]:
    """The real journal with rollouts out of thin air, four to a file."""
    journal.begin_attempt(folder.path)
    finished = journal.read_finished_ids(folder.path)
    written = journal.Journal(folder.path, flush_s=1000)
    for number, question in enumerate(QUESTIONS):
        if f"{question.id}-0" not in finished:
            written.add(build_trajectory(build_search("rotor", 2), build_search("speed", 1), question=question))
        if number % 4 == 3:
            written.flush()
    failures.write_problems(folder.path, max_tries=3)
    return {"finished": len(journal.read_finished_ids(folder.path))}


def run_finetune(config: RunConfig, folder: StageFolder) -> dict[str, Any]:
    artifacts.write_json(folder.path / "adapter" / "adapter_config.json", {"r": 8})
    artifacts.write_bytes(folder.path / "adapter" / "adapter_model.safetensors", bytes(range(256)) * 10_000)
    artifacts.write_bytes(folder.path / "checkpoints" / "optimizer.pt", b"large")
    artifacts.write_jsonl(folder.path / "curve.jsonl", [{"step": 1, "loss": 0.5}])
    return {"steps": 1}


RUNS: dict[str, Callable[[RunConfig, StageFolder], dict[str, Any]]] = {
    "index": run_index,
    "collect": run_collect,
    "finetune": run_finetune,
}


def run_written(stage: Stage, config: RunConfig, folder: StageFolder) -> dict[str, Any]:
    """Run a stage, by its stand-in here where it has one."""
    return RUNS[stage.name](config, folder) if stage.name in RUNS else run_code(stage, config, folder)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("damage") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_code", run_written)
        run_stages(LOOP, configure(run_dir))
    return run_dir


@pytest.fixture
def run_dir(finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runner, "run_code", run_written)
    return shutil.copytree(finished_run, tmp_path / "run")


def configure(run_dir: Path, *options: str) -> RunConfig:
    return load(RunConfig, ["--run-dir", str(run_dir), "--format.formats", "sft_query", *options])


def list_files(run_dir: Path) -> list[Path]:
    return [run_dir / name / path for name in NAMES for path in checksums.list_files(run_dir / name, ("checkpoints",))]


def flip(path: Path, place: int | None = None) -> None:
    with path.open("r+b") as stream:
        stream.seek(min(path.stat().st_size // 2, 1000) if place is None else place)
        [value] = stream.read(1) or [0]
        stream.seek(-1 if value else 0, 1)
        stream.write(bytes([value ^ 0x41]))


def truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flip": flip,
    "truncate": truncate,
    "delete": Path.unlink,
    "folder": replace_by_folder,
}


def test_a_finished_run_is_skipped(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_stages(LOOP, configure(run_dir))
    assert [line.split(" (")[0] for line in capsys.readouterr().out.splitlines()] == [f"{n}: unchanged, skipped" for n in NAMES]
    assert not (run_dir / "_previous").exists()


@pytest.mark.seconds
def test_every_damage_to_every_file_is_noticed_and_mended(
    finished_run: Path, run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [path.relative_to(run_dir) for path in list_files(run_dir)]
    assert len(files) > 30
    for number, (file, kind) in enumerate(zip(files, itertools.cycle(DAMAGES), strict=False)):
        case = shutil.copytree(finished_run, tmp_path / str(number))
        DAMAGES[kind if (case / file).stat().st_size else "folder"](case / file)
        run_stages(LOOP, configure(case))
        said = "".join(capsys.readouterr())
        is_unfinished = (file.name, kind) == ("manifest.json", "delete")
        expected = f"{file.parts[0]}: going on in" if is_unfinished else f"damaged ({Path(*file.parts[1:])}: "
        assert expected in said, (file, kind, said)
        assert [name for name in NAMES if f"{name}: unchanged" not in said] == [file.parts[0]], (file, kind, said)
        for name in NAMES:
            verify_stage(case / name)
        shutil.rmtree(case)


def read_outcome(run_dir: Path, name: str) -> dict[str, bytes]:
    return {path: (run_dir / name / path).read_bytes() for path in checksums.list_files(run_dir / name)}


@pytest.mark.seconds
def test_only_the_rollouts_of_a_damaged_file_are_done_again(run_dir: Path) -> None:
    victim, other = journal.list_files(run_dir / "collect", "trajectories")
    written_at = other.stat().st_mtime_ns
    flip(victim)
    with pytest.raises(DamageError, match=rf"{victim.name}: holds other bytes.*python jobs/collect\.py --verify"):
        run_stage(STAGES["process"], configure(run_dir, "--process.top-k", "2"))
    run_stage(STAGES["collect"], configure(run_dir))
    run_stage(STAGES["process"], configure(run_dir, "--process.top-k", "2"))
    assert other.stat().st_mtime_ns == written_at
    assert not victim.exists()
    assert len(list((run_dir / "_previous").glob(f"collect-*/trajectories/{victim.name}"))) == 1
    assert len(journal.read_finished_ids(run_dir / "collect")) == len(QUESTIONS)


def test_every_byte_of_a_large_file_is_looked_at_on_demand(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(run_dir / "finetune" / "adapter" / "adapter_model.safetensors", 100_000)
    assert find_damage(run_dir / "finetune") == []
    [damage] = find_damage(run_dir / "finetune", whole=True)
    assert damage.path == "adapter/adapter_model.safetensors"
    run_stage(STAGES["finetune"], configure(run_dir))
    assert "unchanged, skipped" in capsys.readouterr().out
    run_stage(STAGES["finetune"], configure(run_dir, "--verify"))
    assert "damaged (adapter/adapter_model.safetensors: holds other bytes" in capsys.readouterr().err


@pytest.mark.seconds
def test_what_only_a_reader_sees_is_mended(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checksums, "_MAX_QUICK_BYTES", 0)  # then a quick look sees sizes alone
    flip(journal.list_files(run_dir / "collect", "trajectories")[0])
    run_stages(LOOP, configure(run_dir))
    assert "damaged" not in caplog.text
    caplog.clear()
    run_stages(LOOP, configure(run_dir, "--process.top-k", "2"))
    first_pass, looks_closer, second_pass = caplog.text.partition("Looking at every byte of the run")
    assert "collect: unchanged, skipped" in first_pass
    assert looks_closer
    assert "collect: going on" in second_pass
    assert [verify_stage(run_dir / name)[0] > 0 for name in NAMES] == [True] * len(NAMES)


def test_another_tantivy_builds_the_index_again(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drag_ray.pipeline.runner.version", lambda name: f"another {name}")
    before = (run_dir / "index" / "manifest.json").stat().st_mtime_ns
    run_stage(STAGES["index"], configure(run_dir))
    assert (run_dir / "index" / "manifest.json").stat().st_mtime_ns > before


def test_a_manifest_of_an_earlier_version_makes_the_stage_run_again(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_dir / "process" / "manifest.json"
    record = json.loads(path.read_text())
    artifacts.write_json(path, {key: record[key] for key in ("stage", "fingerprint", "counts", "duration_s")})
    with pytest.raises(DamageError, match=r"as one of an earlier version\. Run: python jobs/process\.py"):
        run_stage(STAGES["format"], configure(run_dir))
    run_stage(STAGES["process"], configure(run_dir))
    assert "damaged (manifest.json: is not what was written, or of an earlier version)" in capsys.readouterr().err
    run_stage(STAGES["format"], configure(run_dir))


def test_rows_that_were_filtered_by_hand_are_trained_on_if_accepted(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_dir / "format" / "sft_query" / "train.jsonl"
    kept = rows.read_text().splitlines(keepends=True)[:-1]
    rows.write_text("".join(kept))
    before = read_outcome(run_dir, "finetune")
    config = configure(run_dir, "--finetune.epochs", "7")
    with pytest.raises(DamageError, match=r"train\.jsonl: has .* bytes were written(.|\n)*drag-ray verify .*format --accept"):
        run_stage(STAGES["finetune"], config)
    assert read_outcome(run_dir, "finetune") == before
    assert main(["verify", str(run_dir / "format"), "--accept"]) == 0
    assert "accepted: sft_query/train.jsonl" in capsys.readouterr().out
    run_stages(LOOP, configure(run_dir))
    said = capsys.readouterr().out
    assert "format: unchanged, skipped" in said
    assert "finetune: starting" in said
    assert rows.read_text() == "".join(kept)


def test_rows_that_were_changed_and_not_accepted_are_moved_aside(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_dir / "format" / "sft_query" / "train.jsonl"
    written = rows.read_text()
    rows.write_text("mine\n")
    run_stages(LOOP, configure(run_dir))
    assert rows.read_text() == written
    [kept] = (run_dir / "_previous").glob("format-*/sft_query/train.jsonl")
    assert kept.read_text() == "mine\n"
    assert str(kept.parents[1]) in capsys.readouterr().err


def test_verify_names_what_is_damaged_in_every_stage(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(run_dir)]) == 0
    assert capsys.readouterr().out.count("as they were written") == len(NAMES)
    (run_dir / "index" / "pages.parquet").unlink()
    flip(run_dir / "finetune" / "curve.jsonl")
    assert main(["verify", str(run_dir)]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("as they were written") == len(NAMES) - 2
    assert "pages.parquet: is missing" in captured.err
    assert "curve.jsonl: holds other bytes" in captured.err
    assert main(["verify", str(run_dir / "index"), "--accept"]) == 0
    assert main(["verify", str(run_dir / "nowhere")]) == 1


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_page_image_is_not_shown(run_dir: Path, kind: str) -> None:
    [path] = (run_dir / "index" / "page_images").rglob("*.jpg")
    DAMAGES[kind](path)
    with pytest.raises(DataError, match=r"jpg.*python jobs/index\.py --verify"):
        ImageStore(run_dir / "index" / "page_images").read(f"{path.parent.name}/{path.name}")


def test_unfinished_work_of_nobody_is_moved_away_with_a_sentence(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_dir / "collect" / "manifest.json").unlink()
    (run_dir / "collect" / "identity.json").write_text("{")
    run_stage(STAGES["collect"], configure(run_dir))
    assert "collect: has no identity.json that can be read; moved to" in capsys.readouterr().out


def test_damaged_trajectories_are_neither_shown_nor_exported(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(journal.list_files(run_dir / "collect", "trajectories")[0])
    for command in (["show", str(run_dir)], ["export", str(tmp_path / "out.jsonl"), "--run-dir", str(run_dir)]):
        assert main(command) == 1
        assert "DamageError" in capsys.readouterr().err


def test_imported_trajectories_are_imported_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"id": "t1", "question_id": "q1", "question": "Why?", "ground_truth": {"answers": ["so"], "answer_locations": []}}
    source, run_dir = tmp_path / "in.jsonl", tmp_path / "run"
    source.write_text(json.dumps(record | {"iterations": [{"step": 1, "action": "search", "query": "why", "results": []}]}))
    command = ["import", str(source), "--run-dir", str(run_dir), "--agent.query-mode", "rewrite"]
    assert main(command) == 0
    flip(run_dir / "collect" / "trajectories" / "part-00000.parquet")
    with pytest.raises(DamageError, match=rf"drag-ray import {source} --from drag --run-dir {run_dir}"):
        run_stage(STAGES["process"], configure(run_dir))
    assert main(command) == 0
    refuse_damage(run_dir / "collect", whole=True)


def test_a_list_with_the_samples_of_before_is_read() -> None:
    digest = "0" * 64
    written = f'{{"path": "a", "bytes": 1, "sha256": "{digest}", "sample": "11"}}\n'
    assert checksums.parse_list(written) == [checksums.Checksum("a", 1, digest)]
    with pytest.raises(ValueError, match="other"):
        checksums.parse_list(f'{{"path": "a", "bytes": 1, "sha256": "{digest}", "other": 1}}\n')


@pytest.mark.parametrize("digest", ['""', "null", "5", '"0a"', '"not of hexadecimal"'])
def test_a_list_whose_hash_every_file_would_have_is_none(digest: str) -> None:
    with pytest.raises(ValueError):
        checksums.parse_list(f'{{"path": "a", "bytes": 1, "sha256": {digest}}}\n')


def test_files_in_a_list_of_their_own_are_read_again_only_if_they_were_written_since(tmp_path: Path) -> None:
    inner = tmp_path / "index" / "inner"
    inner.mkdir(parents=True)
    for name in ("same", "written", "longer"):
        (inner / name).write_text(name)
    said = [checksums.Checksum(name, len(name), "0" * 64) for name in ("same", "written", "longer", "gone")]
    (inner / checksums.LIST_NAME).write_text(checksums.format_list(said))
    shutil.copytree(inner, tmp_path / "index" / "of others")
    (tmp_path / "index" / "other").mkdir()
    (tmp_path / "index" / "other" / checksums.LIST_NAME).write_text("no list")
    listed_ns = (inner / checksums.LIST_NAME).stat().st_mtime_ns
    os.utime(inner / "written", ns=(listed_ns, listed_ns + 1))
    with (inner / "longer").open("a") as stream:
        stream.write("!")
    os.utime(inner / "longer", ns=(listed_ns, listed_ns))
    files = checksums.list_files(tmp_path / "index")
    known = checksums.read_inner(tmp_path / "index", files, ("inner", "other", "not there"))
    assert [checksum.path for checksum in known] == ["inner/same"]


def test_a_list_that_a_model_of_others_brings_along_is_not_believed(tmp_path: Path) -> None:
    identity = artifacts.Identity("finetune", {}, {})
    with StageFolder(tmp_path / "finetune", identity) as folder:
        weights = folder.path / "encoder" / "model.safetensors"
        artifacts.write_bytes(weights, b"weights")
        said = checksums.Checksum(weights.name, 7, "0" * 64)
        artifacts.write_text(weights.with_name(checksums.LIST_NAME), checksums.format_list([said]))
        folder.finish({})
    assert find_damage(folder.path, whole=True) == []
