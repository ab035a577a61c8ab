"""How far a run is, by what lies on the disk: finished, in part, unfinished and damaged stages, each named by its address."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from factories import build_question, build_search, build_trajectory

from drag_ray.cli.main import main
from drag_ray.errors import ArtifactError
from drag_ray.pipeline.status import read_status
from drag_ray.rollout.journal import Journal
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity


def write_stage(run_dir: Path, address: str, counts: dict[str, Any]) -> Path:
    with StageFolder(run_dir / address, Identity(address, {}, {}, address=address)) as folder:
        folder.finish(counts)
    return run_dir / address


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    write_stage(tmp_path, "index", {"pages": 12_345})
    write_stage(tmp_path, "finetune/dpo", {"steps": 7})
    write_stage(tmp_path, "rounds/2/collect", {"finished": 90, "unfinished": 10})
    with StageFolder(tmp_path / "collect", Identity("collect", {}, {})) as folder:
        written = Journal(folder.path, flush_s=1000)
        for number in range(3):
            written.add(build_trajectory(build_search("rotor", 1), question=build_question(id=f"q{number}")))
        written.flush()
    (tmp_path / "_previous" / "index-0").mkdir(parents=True)
    (tmp_path / "_previous" / "index-0" / "manifest.json").write_text("{}")
    return tmp_path


def test_each_stage_is_told_with_its_state_and_its_figures(run_dir: Path) -> None:
    told = {status.address: (status.state, status.counts) for status in read_status(run_dir)}
    assert told == {
        "index": ("finished", {"pages": 12_345}),
        "finetune/dpo": ("finished", {"steps": 7}),
        "rounds/2/collect": ("in part", {"finished": 90, "unfinished": 10}),
        "collect": ("unfinished", {"rollouts": 3}),
    }


def test_a_manifest_that_is_not_what_was_written_is_told(run_dir: Path) -> None:
    (run_dir / "index" / "manifest.json").write_text("{}")
    assert {status.address: status.state for status in read_status(run_dir)}["index"] == "damaged"


def test_the_time_of_the_last_write_is_told_and_the_newest_comes_last(run_dir: Path) -> None:
    hour_ago = time.time() - 3600
    for path in (run_dir / "index", *(run_dir / "index").iterdir()):
        os.utime(path, (hour_ago, hour_ago))
    first = read_status(run_dir)[0]
    assert first.address == "index"
    assert 3590 < first.changed_s < 3700


def test_the_command_prints_a_line_a_stage_and_a_figure_and_changes_nothing(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    assert main(["status", str(run_dir)]) == 0
    lines = capsys.readouterr().out.splitlines()
    stages = [line for line in lines if not line.startswith(" ")]
    assert len(stages) == 4
    index, places = next(line for line in stages if line.startswith("index: ")), [lines.index(line) for line in stages]
    assert index.startswith("index: finished in 0 s, ended ")
    assert "  pages  12,345" in lines
    collected = places[[line.partition(":")[0] for line in stages].index("rounds/2/collect")]
    assert lines[collected + 1 : collected + 3] == ["  finished    90", "  unfinished  10"]
    assert len(lines) == 4 + 5
    assert main(["status", str(run_dir), "--json"]) == 0
    assert {row["address"] for row in json.loads(capsys.readouterr().out)} == {
        "index",
        "finetune/dpo",
        "rounds/2/collect",
        "collect",
    }
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")} == before


def test_a_folder_without_a_stage_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no stage was begun"):
        read_status(tmp_path)
    assert main(["status", str(tmp_path / "nothing")]) == 1
