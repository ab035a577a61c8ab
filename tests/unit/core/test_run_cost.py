"""Progress of a run by the files on the disk, the cost of its machines over all its starts, and that of a larger collection."""

import json
import os
import threading
import time
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from evaluation_cases import build_questions, build_rollouts
from factories import build_question, build_search, build_trajectory
from finished_cases import finish_evaluation
from pydantic import ValidationError

import drag_ray
from drag_ray.cli.main import main
from drag_ray.cluster import ledger
from drag_ray.cluster.ledger import LEDGER_NAME, CostConfig, Ledger
from drag_ray.errors import ArtifactError
from drag_ray.pipeline.status import read_status
from drag_ray.rollout.journal import Journal
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

COLLECTED = {"questions": 200, "rollouts": 800, "questions_with_success": 50, "cost": 1.0}


def finish(run_dir: Path, stage: str, counts: dict[str, Any], spent: dict[str, float]) -> None:
    with StageFolder(run_dir / stage, Identity(stage, {}, {})) as folder:
        folder.finish(counts, spent=spent)


def test_stages_are_added_up_and_a_question_has_its_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(tmp_path, "index", {"questions": 200}, {})
    finish(tmp_path, "collect", COLLECTED, {"gpu_hours": 2.0, "cpu_hours": 32.0, "cost": 5.0})
    finish(tmp_path, "finetune", {}, {"gpu_hours": 1.0, "cpu_hours": 16.0, "cost": 2.5})
    assert main(["cost", str(tmp_path), "--questions", "1000"]) == 0
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "GPU hours CPU hours machines replies",
        "collect 2 32 5 1",
        "finetune 1 16 2.5 0",
        "all 3 48 7.5 1",
        "collect: 200 questions, 0.03 a question; 50 are solved, 0.12 each",
        "collect of 1,000 questions, at most, as the start of the engines counts as often: 10 GPU hours, 160 CPU hours, 30",
    ]
    assert main(["cost", str(tmp_path), "--questions", "1000", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [stage["address"] for stage in told["stages"]] == ["collect", "finetune"]
    assert [(stage["machines"], stage["replies"], stage["solved"]) for stage in told["forecasts"]] == [(25.0, 5.0, 250)]
    collect, _ = drag_ray.open_run(tmp_path).read_costs()
    assert (collect.address, collect.total, collect.forecast(1000).total) == ("collect", 6.0, 30.0)


@pytest.mark.seconds
def test_policies_of_an_evaluation_share_its_cost_by_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = {"question": [1, 1, 1, 1], "base": [1, None, None, None], "tuned": [1, 1, None, None]}
    seconds = {"question": 0.0, "base": 1.0, "tuned": 3.0}
    rollouts = {
        policy: [replace(rollout, duration_s=seconds[policy]) for rollout in some]
        for policy, some in build_rollouts(ranks).items()
    }
    finish_evaluation(tmp_path / "evaluate", rollouts, build_questions(4), spent={"gpu_hours": 2.0, "cost": 8.0})
    assert main(["cost", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "evaluate: base solved 1 questions, 2 each for machines",
        "evaluate: tuned solved 2 questions, 3 each for machines",
    ]
    [evaluate] = drag_ray.open_run(tmp_path).read_costs()
    assert [(policy.policy, policy.machines, policy.solved) for policy in evaluate.policies] == [
        ("base", 2.0, 1),
        ("tuned", 6.0, 2),
    ]


def test_where_nothing_was_noted_it_is_said_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(tmp_path, "collect", {**COLLECTED, "cost": 0}, {})
    assert main(["cost", str(tmp_path)]) == 1
    assert "--cost.gpu-hour" in capsys.readouterr().err
    finish(tmp_path, "finetune", {}, {"gpu_hours": 1.0, "cpu_hours": 0.0, "cost": 2.5})
    assert main(["cost", str(tmp_path), "--questions", "5"]) == 1
    assert "no finished collection has recorded its cost" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["cost", str(tmp_path), "--questions", "0"])


def write_hours(folder: Path, *hours: tuple[float, int, int]) -> Path:
    path = folder / LEDGER_NAME
    lines = [{"seconds": 3600 * seconds, "gpus": gpus, "cpus": cpus} for seconds, gpus, cpus in hours]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_hours_of_all_starts_are_added_up_and_what_ends_a_stage_within_its_budget_is_what_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Ledger(tmp_path / LEDGER_NAME, CostConfig(gpu_hour=1, budget=1), lambda: (1, 0)):
        raise KeyboardInterrupt
    path = write_hours(tmp_path, (2, 8, 64), (0.5, 4, 32))
    with Ledger(path, CostConfig(gpu_hour=2.5, cpu_hour=0.1), lambda: (0, 0)) as hours:
        pass
    assert hours.summarise() == {"gpu_hours": 18.0, "cpu_hours": 144.0, "cost": 59.4}


def test_machines_that_come_while_a_stage_runs_count_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "INTERVAL_S", 0.01)
    has, looked = chain([(1, 0)] * 2, repeat((8, 4))), threading.Semaphore(0)

    def count() -> tuple[int, int]:
        looked.release()
        return next(has)

    with Ledger(tmp_path / LEDGER_NAME, CostConfig(gpu_hour=1), count):
        for _ in range(4):
            looked.acquire()
    lines = [json.loads(line) for line in (tmp_path / LEDGER_NAME).read_text().splitlines()]
    assert [(line["gpus"], line["cpus"]) for line in lines[:4]] == [(1, 0), (1, 0), (8, 4), (8, 4)]
    assert all(line["seconds"] > 0 for line in lines[:4])


@pytest.mark.parametrize(
    "line", ["{", "[1]", '{"seconds": 1}', '{"seconds": NaN, "gpus": 1, "cpus": 1}', '{"seconds": -9, "gpus": 1, "cpus": 1}']
)
def test_a_line_of_a_ledger_that_is_none_is_named(line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_hours(tmp_path, (2, 8, 64))
    with path.open("a") as stream:
        stream.write(line + "\n")
    with Ledger(path, CostConfig(gpu_hour=1), lambda: (0, 0)) as hours:
        pass
    assert hours.summarise()["gpu_hours"] == 16
    assert f"{path}: line 2 is skipped" in caplog.text


def test_without_prices_nothing_is_noted_and_a_budget_needs_one(tmp_path: Path) -> None:
    with Ledger(tmp_path / LEDGER_NAME, CostConfig(), lambda: pytest.fail("nobody asks")) as hours:
        pass
    assert hours.summarise() == {}
    assert not (tmp_path / LEDGER_NAME).exists()
    with pytest.raises(ValidationError, match=r"set cost.gpu_hour"):
        CostConfig(budget=5)


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


def test_each_stage_is_told_with_its_state_its_figures_and_its_last_write_and_the_newest_comes_last(run_dir: Path) -> None:
    told = {status.address: (status.state, status.counts) for status in read_status(run_dir)}
    assert told == {
        "index": ("finished", {"pages": 12_345}),
        "finetune/dpo": ("finished", {"steps": 7}),
        "rounds/2/collect": ("in part", {"finished": 90, "unfinished": 10}),
        "collect": ("unfinished", {"rollouts": 3}),
    }
    hour_ago = time.time() - 3600
    for path in (run_dir / "index", *(run_dir / "index").iterdir()):
        os.utime(path, (hour_ago, hour_ago))
    first = read_status(run_dir)[0]
    assert first.address == "index"
    assert 3590 < first.changed_s < 3700
    (run_dir / "index" / "manifest.json").write_text("{}")
    assert {status.address: status.state for status in read_status(run_dir)}["index"] == "damaged"


def test_the_command_prints_a_line_a_stage_and_a_figure(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    with pytest.raises(ArtifactError, match="no stage was started"):
        read_status(tmp_path)
    assert main(["status", str(tmp_path / "nothing")]) == 1
