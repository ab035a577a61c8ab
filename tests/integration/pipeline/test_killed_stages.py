"""Process and format are killed, their folders moved and copied, the disk filled: nothing is lost or repeated."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from factories import build_question, build_search, build_trajectory
from repeated_kills import MARK, kill_and_resume

from drag_ray import schemas
from drag_ray.errors import ArtifactError, DataError
from drag_ray.format.config import FormatConfig
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_stages
from drag_ray.pipeline.stages import STAGES
from drag_ray.stage_runs.damage import verify_stage
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity, require_manifest
from drag_ray.storage.checksums import LIST_NAME
from drag_ray.types import Evidence

DISK_MIB = 32
NUM_QUESTIONS = 400
RUN_STAGE = f"""
import importlib, sys
from pathlib import Path
from drag_ray.pipeline.runner import run_stages
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.stages import STAGES

run_dir, stage = Path(sys.argv[1]), STAGES[sys.argv[2]]
importlib.import_module(stage.module)
(run_dir / {MARK!r}).touch()
run_stages([stage], RunConfig(run_dir=run_dir))
"""
"""One part of a set is worked on by the driver itself, without Ray."""


def start(stage: str) -> Callable[[Path], subprocess.Popen[bytes]]:
    return lambda run_dir: subprocess.Popen([sys.executable, "-c", RUN_STAGE, str(run_dir), stage])


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose collection is made up, and whose process stage has finished."""
    run_dir = tmp_path_factory.mktemp("processed") / "run"
    records = [
        build_trajectory(
            build_search("wide"), build_search(f"exact {sample}", 1 + sample), question=question, sample_index=sample
        )
        for question in (
            build_question(id=f"q{number}", question=f"Question {number}?", evidence=(Evidence("m.pdf", number + 1),))
            for number in range(NUM_QUESTIONS)
        )
        for sample in range(3)
    ]
    with StageFolder(run_dir / "collect", Identity("collect", {}, {})) as folder:
        table = schemas.to_table(records, schemas.TRAJECTORIES)
        artifacts.write_parquet(folder.path / "trajectories" / "part-0.parquet", table)
        folder.finish({"finished": len(records)})
    run_stages([STAGES["process"]], RunConfig(run_dir=run_dir))
    return run_dir


def read_result(stage_dir: Path) -> tuple[str, dict[str, object]]:
    """The list of all files with their hashes, and the counts; nothing else lies there, and all is as it was written."""
    verify_stage(stage_dir)
    listed = (stage_dir / LIST_NAME).read_text()
    files = {path.relative_to(stage_dir).as_posix() for path in stage_dir.rglob("*") if path.is_file()}
    assert len(files) == len(listed.splitlines()) + len({artifacts.MANIFEST_NAME, LIST_NAME})
    return listed, dict(require_manifest(stage_dir).counts)


def check_kills(stage: str, processed: Path, folder: Path, num_kills: int) -> None:
    shutil.copytree(processed, folder / "run")
    if stage == "process":
        shutil.rmtree(folder / "run" / "process")
    results = list[object]()

    def check(run_dir: Path) -> None:
        results.append(read_result(run_dir / stage))
        assert results[-1] == results[0]  # the first one was not disturbed

    def reset(run_dir: Path) -> None:
        shutil.rmtree(run_dir / stage)

    kill_and_resume(folder / "run", start(stage), check, num_kills, reset)


@pytest.mark.parametrize("stage", ["process", "format"])
def test_a_stage_that_is_killed_twice_leaves_what_an_undisturbed_one_does(stage: str, processed: Path, tmp_path: Path) -> None:
    check_kills(stage, processed, tmp_path, num_kills=2)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["process", "format"])
def test_a_stage_that_is_killed_twenty_times_leaves_what_an_undisturbed_one_does(
    stage: str, processed: Path, tmp_path: Path
) -> None:
    check_kills(stage, processed, tmp_path, num_kills=20)


@pytest.mark.parametrize("free_kib", [4, 64, 256])
def test_format_on_a_full_disk_goes_on_when_there_is_room(processed: Path, small_disk: Path, free_kib: int) -> None:
    run_dir = small_disk / "run"
    shutil.copytree(processed, run_dir)
    config = RunConfig(run_dir=run_dir, format=FormatConfig())
    run_stages([STAGES["format"]], config)
    expected = read_result(run_dir / "format")
    shutil.rmtree(run_dir / "format")
    filler, room = small_disk / "filler", os.statvfs(small_disk)
    filler.write_bytes(bytes(max(0, room.f_bavail * room.f_bsize - free_kib * 1024)))
    with pytest.raises(ArtifactError, match=r"No space left on device.*Free some space"):
        run_stages([STAGES["format"]], config)
    assert not (run_dir / "format" / artifacts.MANIFEST_NAME).exists()
    filler.unlink()
    run_stages([STAGES["format"]], config)
    assert read_result(run_dir / "format") == expected


def test_a_run_of_an_earlier_version_is_refused_by_its_readers_and_set_aside_whole_by_its_writer(
    processed: Path, tmp_path: Path
) -> None:
    """Its tables have another schema version, and its identity another version of the stage."""
    run_dir = tmp_path / "run"
    shutil.copytree(processed, run_dir)
    shutil.rmtree(run_dir / "process")
    with StageFolder(run_dir / "collect", Identity("collect", {}, {}, version=0)) as folder:
        table = schemas.to_table([build_trajectory(build_search("wide"))], schemas.TRAJECTORIES)
        earlier = table.replace_schema_metadata({**(table.schema.metadata or {}), b"drag_ray.schema_version": b"8"})
        artifacts.write_parquet(folder.path / "trajectories" / "part-0.parquet", earlier)
        folder.finish({"finished": 1})
    before = read_files(run_dir / "collect")
    with pytest.raises(DataError, match=r"schema version 8, this code reads version \d+\. Run the stage that wrote it again"):
        run_stages([STAGES["process"]], RunConfig(run_dir=run_dir))
    assert read_files(run_dir / "collect") == before
    with StageFolder(run_dir / "collect", Identity("collect", {}, {})) as folder:
        assert set(read_files(folder.path)) == {artifacts.IDENTITY_NAME}
    assert before in [read_files(aside) for aside in (run_dir / artifacts.PREVIOUS_DIR_NAME).iterdir()]


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
