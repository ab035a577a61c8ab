"""One part of a set of trajectories: all of some questions, few enough to be in memory at once."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from drag_ray.process.config import ProcessConfig
from drag_ray.process.judging import take_verdicts
from drag_ray.process.statistics import count_part
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns, summarise_trajectories
from drag_ray.storage.artifacts import write_parquet
from drag_ray.storage.file_access import list_folder, reading, writing

TURNS_DIR_NAME = "turns"
TRAJECTORIES_DIR_NAME = "trajectories"


def part_name(part: int) -> str:
    """The file of a part."""
    return f"part-{part:05d}"


def deal_out(paths: Sequence[Path], num_parts: int, target_dir: Path, candidate_depth: int = 0) -> None:
    """Write the records of `paths` to `target_dir/part-*/`, so that all records of a question go to the same part. Raises
    ArtifactError where a file cannot be read or written."""
    records = read_records(paths, candidate_depth).with_columns(part=pl.col("question_id").hash() % num_parts)
    for (part,), dealt in records.partition_by("part", as_dict=True, include_key=False).items():
        path = target_dir / part_name(part) / f"{paths[0].stem}.arrow"
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            dealt.write_ipc(path, compression="lz4")


def read_dealt(part_dir: Path) -> pl.DataFrame:
    """The records that `deal_out` wrote for one part. Raises ArtifactError where the folder or a file in it cannot be read."""
    with reading(part_dir, "Run: python jobs/process.py"):
        return pl.scan_ipc(list_folder(part_dir, "*.arrow"), glob=False).collect()


def process_part(records: pl.DataFrame, part: int, config: ProcessConfig, folder: Path) -> Counter[Any]:
    """Score the trajectories of one part and write its two tables into `folder`. Returns the counts of `count_part`, and of the
    records that were left out. Raises DataError where `config.top_k` is beyond the recorded depth.

    Args:
        records: as of `read_records`, every record of the part's questions.
        part: number of the part, which names its files.
        folder: of the stage; with `config.judge` it has what `judge_rollouts` leaves.
    """
    selected = select_trajectories(records, config.top_k)
    frame, judged = take_verdicts(selected.frame, config, folder) if config.judge.enabled else (selected.frame, Counter[str]())
    turns = explode_turns(frame, config)
    trajectories = summarise_trajectories(frame, turns)
    for name, table in ((TURNS_DIR_NAME, turns), (TRAJECTORIES_DIR_NAME, trajectories)):
        write_parquet(folder / name / f"{part_name(part)}.parquet", table.to_arrow())
    counts = count_part(turns, trajectories)
    counts.update(selected.left_out)
    counts.update(judged)
    return counts
