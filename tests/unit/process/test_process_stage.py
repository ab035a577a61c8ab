import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from factories import asked_at, build_answer, build_question, build_search, build_trajectory, build_turn, write_trajectories

from drag_ray.errors import DataError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.process.config import ProcessConfig
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Trajectory


def run_stage(run_dir: Path, records: list[Trajectory], **options: Any) -> dict[str, Any]:
    source = run_dir / "collect" / "trajectories"
    write_trajectories(source / "part-0.parquet", records)
    return start_stage(run_dir, **options)


def start_stage(run_dir: Path, **options: Any) -> dict[str, Any]:
    with StageFolder(run_dir / "process", Identity("process", {}, {})) as folder:
        return run_code(STAGES["process"], RunConfig(run_dir=run_dir, process=ProcessConfig(**options)), folder)


def test_statistics_tables_and_counts_agree_with_the_trajectories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = build_question(id="q2")
    records = [
        build_trajectory(build_search("a", 1), build_answer()),
        build_trajectory(build_search("a"), build_search("a"), build_search("b", 2), sample_index=1),
        build_trajectory(build_turn(), build_search("c", hits=()), question=other),
        build_trajectory(build_search("a", 1), build_search("d", 3), sample_index=2),
        build_trajectory(error="engine died", sample_index=3),
    ]
    counts = run_stage(tmp_path, records)

    statistics = json.loads((tmp_path / "process" / "statistics.json").read_text())
    assert (statistics["trajectories"], statistics["valid"], statistics["filtered"]) == (4, 3, 1)
    assert statistics["first_success_step"] == {"1": 2, "3": 1}
    assert statistics["best_rank"] == {"1": 2, "2": 1}
    assert (statistics["questions"], statistics["questions_with_success"], statistics["yield"]) == (2, 1, 0.5)
    assert statistics["distinct_successful_queries"] == 3
    assert (statistics["searches"], statistics["repeated_queries"], statistics["zero_hit_searches"]) == (7, 1, 1)
    assert (statistics["turns"], statistics["invalid_replies"], statistics["failed_rollouts"]) == (9, 1, 1)
    # Positions 1 of 3, 3 * 2 + 2 = 8 of 9, none, 1 of 6.
    assert statistics["mean_cumulative_effort"] == pytest.approx((1 + (1 - 7 / 9) + 0 + 1) / 4)
    assert counts["valid"] == 3
    assert "first_success_step" not in counts
    assert pl.read_parquet(tmp_path / "process" / "turns" / "*.parquet").height == 9
    assert pl.read_parquet(tmp_path / "process" / "trajectories" / "*.parquet").height == 4
    printed = capsys.readouterr().out
    assert "Valid (evidence found)" in printed
    assert "75.0%" in printed
    assert "Proposals" not in printed


def test_wins_over_the_question_are_counted_for_policy_and_proposals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = build_question(id="q2")
    records = [
        build_trajectory(build_search("a", 1), **asked_at(2)),
        build_trajectory(build_search("b", 3), build_search("c", 1), sample_index=1, **asked_at(2)),
        build_trajectory(build_search("d", 2), sample_index=2, **asked_at(2)),
        build_trajectory(build_turn(), build_search("e", 5), question=other, **asked_at(None)),
        build_trajectory(build_search("f", 1), sample_index=3, id="q1/rm3", baseline="rm3", **asked_at(2)),
        build_trajectory(build_search("g", 3), sample_index=4, id="q1/hyde", baseline="hyde", **asked_at(2)),
        build_trajectory(build_search("h", 1), question=other, id="q2/hyde", baseline="hyde", **asked_at(None)),
        build_trajectory(build_search("i", 1), question=other, id="q2/hinted", hinted=True, **asked_at(None)),
    ]
    run_stage(tmp_path, records)
    statistics = json.loads((tmp_path / "process" / "statistics.json").read_text())
    assert (statistics["trajectories"], statistics["questions"], statistics["hinted"]) == (4, 2, 1)
    assert (statistics["first_searches"], statistics["first_wins"], statistics["first_losses"]) == (3, 1, 1)
    assert statistics["questions_with_win"] == 2  # of q2 a later search
    assert (statistics["proposals"], statistics["proposals_with_win"], statistics["questions_with_proposed_win"]) == (3, 2, 2)
    lines = capsys.readouterr().out.splitlines()
    printed = {label: figures for label, *figures in (re.split(r"(?<=\S) {2,}", line.rstrip()) for line in lines)}
    assert printed["First searches"] == ["3"]
    assert [name for name in printed if "better than the question" in name] == ["  better than the question"]
    assert printed["  worse than the question"] == ["1", "33.3%"]
    assert printed["Questions that a search beats"] == ["2", "100.0%"]
    assert printed["  to train towards"] == ["3", "60.0%"]
    assert printed["Proposals of baselines, not above"] == ["3"]
    assert printed["  questions that they beat"] == ["2", "100.0%"]


def test_a_stage_that_was_killed_starts_again_from_its_input_whatever_it_has_left(tmp_path: Path) -> None:
    records = [build_trajectory(build_search("a", 1)), build_trajectory(build_search("b"), sample_index=1)]
    counts, process_dir = run_stage(tmp_path, records), tmp_path / "process"
    written = {path: path.read_bytes() for path in sorted(process_dir.rglob("*")) if path.is_file()}
    for path in written:
        if path.name != "identity.json":
            path.write_bytes(written[path][: len(written[path]) // 2])
    (process_dir / "turns" / ".part-00000.parquet.abc.unfinished").write_bytes(b"half")
    (process_dir / "dealt" / "part-00000").mkdir(parents=True)
    (process_dir / "dealt" / "part-00000" / "part-0.arrow").write_bytes(b"half")
    assert start_stage(tmp_path) == counts
    for path, data in written.items():
        assert path.read_bytes() == data, path


def test_nothing_but_test_questions_is_refused_with_the_counts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1 records .* 1 outside the split 'train'"):
        run_stage(tmp_path, [build_trajectory(build_search(), question=build_question(split="test"))])


def test_drops_are_counted_by_reason_and_options_turn_them_off(tmp_path: Path) -> None:
    records = [
        build_trajectory(build_search("rotor speed"), build_search("manual.pdf")),
        build_trajectory(build_search("Speed, rotor"), sample_index=1),
        build_trajectory(build_search("rotor  speed"), sample_index=2),
        build_trajectory(build_search("cut", finish_reason="length"), sample_index=3),
    ]
    run_stage(tmp_path / "all", records)
    statistics = json.loads((tmp_path / "all" / "process" / "statistics.json").read_text())
    assert statistics["dropped"] == {"duplicate": 1, "file_name": 1, "near_duplicate": 1, "truncated": 1}
    assert statistics["usable_searches"] == 1
    assert run_stage(tmp_path / "none", records, filters=())["usable_searches"] == 5
