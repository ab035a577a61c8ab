import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from factories import build_question, build_search, build_trajectory

from drag_ray import schemas
from drag_ray.artifacts import Identity, StageFolder
from drag_ray.errors import DataError
from drag_ray.format import stage
from drag_ray.format.config import FormatConfig
from drag_ray.process.config import ProcessConfig
from drag_ray.process.stage import run as run_process
from drag_ray.types import Evidence, Trajectory


@dataclass
class RunConfig:
    run_dir: Path
    process: ProcessConfig
    format: FormatConfig

    def stage_dir(self, name: str) -> Path:
        return self.run_dir / name


def run_both(run_dir: Path, records: list[Trajectory], **options) -> dict:
    source = run_dir / "collect" / "trajectories"
    source.mkdir(parents=True)
    pq.write_table(schemas.to_table(records, schemas.TRAJECTORIES), source / "part-0.parquet")
    config = RunConfig(run_dir, ProcessConfig(), FormatConfig(**options))
    with StageFolder(run_dir / "process", Identity("process", {}, {}, "")) as folder:
        run_process(config, folder)
    with StageFolder(run_dir / "format", Identity("format", {}, {}, "")) as folder:
        return stage.run(config, folder)


def build_records() -> list[Trajectory]:
    records = []
    for number in range(10):
        question = build_question(id=f"q{number}", question=f"Question {number}?", evidence=(Evidence("m.pdf", number + 1),))
        records.append(build_trajectory(build_search("wide"), build_search("exact", 1), question=question))
        records.append(build_trajectory(build_search("good", 2), question=question, sample_index=1))
    return records


def test_every_format_is_written_with_both_sides_apart_by_question(tmp_path: Path) -> None:
    counts = run_both(tmp_path, build_records(), validation_fraction=0.2)
    assert counts["validation_questions"] == 2
    for name, rows_per_question in (("sft_query", 2), ("sft_trajectory", 2), ("sft_context", 1), ("dpo", 1), ("reward", 2)):
        train, validation = (pl.read_parquet(tmp_path / "format" / name / f"{side}.parquet") for side in ("train", "validation"))
        assert (train.height, validation.height) == (8 * rows_per_question, 2 * rows_per_question)
        assert not set(train["question_id"]) & set(validation["question_id"])
        assert (counts[f"{name}_train"], counts[f"{name}_validation"]) == (train.height, validation.height)


def test_jsonl_and_parquet_hold_the_same_rows(tmp_path: Path) -> None:
    run_both(tmp_path, build_records())
    for name in stage.BUILDERS:
        lines = (tmp_path / "format" / name / "train.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == pq.read_table(tmp_path / "format" / name / "train.parquet").to_pylist()


def test_only_the_chosen_formats_are_written(tmp_path: Path) -> None:
    run_both(tmp_path, build_records(), formats=("dpo",))
    assert [path.name for path in (tmp_path / "format").iterdir() if path.is_dir()] == ["dpo"]


def test_no_success_at_all_says_what_to_change(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none of 1 searches.*higher temperature"):
        run_both(tmp_path, [build_trajectory(build_search("a"))])


def test_missing_tables_say_which_job_to_run(tmp_path: Path) -> None:
    with (
        StageFolder(tmp_path / "format", Identity("format", {}, {}, "")) as folder,
        pytest.raises(DataError, match=r"searches\.parquet: no such file.*jobs/process\.py"),
    ):
        stage.run(RunConfig(tmp_path, ProcessConfig(), FormatConfig()), folder)
