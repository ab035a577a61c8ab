import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from factories import build_answer, build_question, build_search, build_trajectory, build_turn

from drag_ray import schemas
from drag_ray.artifacts import Identity, StageFolder
from drag_ray.process.config import ProcessConfig
from drag_ray.process.stage import run


@dataclass
class RunConfig:
    run_dir: Path
    process: ProcessConfig

    def stage_dir(self, stage: str) -> Path:
        return self.run_dir / stage


def test_statistics_tables_and_counts_agree_with_the_trajectories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = build_question(id="q2")
    records = [
        build_trajectory(build_search("a", 1), build_answer()),
        build_trajectory(build_search("a"), build_search("a"), build_search("b", 2), sample_index=1),
        build_trajectory(build_turn(), build_search("c", hits=()), question=other),
        build_trajectory(build_search("a", 1), build_search("d", 3), sample_index=2),
        build_trajectory(error="engine died", sample_index=3),
    ]
    source = tmp_path / "collect" / "trajectories"
    source.mkdir(parents=True)
    pq.write_table(schemas.to_table(records, schemas.TRAJECTORIES), source / "part-0.parquet")
    with StageFolder(tmp_path / "process", Identity("process", {}, {}, "")) as folder:
        counts = run(RunConfig(tmp_path, ProcessConfig()), folder)

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
    assert pl.read_parquet(tmp_path / "process" / "searches.parquet").height == 7
    assert pl.read_parquet(tmp_path / "process" / "trajectories.parquet").height == 4
    printed = capsys.readouterr().out
    assert "Valid (evidence found)" in printed
    assert "75.0%" in printed
