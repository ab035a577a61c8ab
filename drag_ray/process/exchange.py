"""Trajectories of another program into a run, and a run's trajectories out of it, as DRAG's `trajectories.jsonl`."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.address import Address
from drag_ray.agent.config import AgentConfig
from drag_ray.artifacts import Identity, compute_file_fingerprint, whole_or_absent, write_jsonl, write_parquet
from drag_ray.corpus.problems import Problem, count_problems
from drag_ray.corpus.text import to_printable
from drag_ray.damage import find_damage
from drag_ray.errors import DataError
from drag_ray.process.drag_jsonl import read_trajectories, to_record
from drag_ray.process.trajectories import check_files
from drag_ray.stage_folder import StageFolder
from drag_ray.types import Trajectory

_BATCH_RECORDS = 2_000
_SHOWN_PROBLEMS = 3


def import_trajectories(path: Path, run_dir: Path, address: Address, config: AgentConfig) -> dict[str, int]:
    """Make a file of DRAG's the finished collect stage of a run; lines that are no record go to its `problems.jsonl`.

    Args:
        path: the file.
        run_dir: the run.
        address: the collect stage in it.
        config: the agent that conversations are rebuilt for.

    Returns:
        Counts: how many were imported (finished), how many lines were set aside, and of what kinds.

    Raises:
        DataError: the file is missing or has no record that can be read.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file. Give a trajectories.jsonl, one JSON object a line.")
    command = f"drag-ray import {path} --run-dir {run_dir}"
    collect_dir = address.locate(run_dir)
    inputs = {to_printable(path.name): compute_file_fingerprint(path)}
    options = config.model_dump(mode="json")
    identity = Identity("collect", options, inputs, "import", command=to_printable(command), address=str(address))
    problems: list[Problem] = []
    num_imported = 0
    with StageFolder(collect_dir, identity, find_damage(collect_dir)) as folder:
        read = _keep_problems(read_trajectories(path, config), problems)
        for number, batch in enumerate(iter(lambda: list(islice(read, _BATCH_RECORDS)), [])):
            table = schemas.to_table(batch, schemas.TRAJECTORIES)
            write_parquet(folder.path / "trajectories" / f"part-{number:05d}.parquet", table)
            num_imported += len(batch)
        write_jsonl(folder.path / "problems.jsonl", [asdict(problem) for problem in problems])
        if not num_imported:
            shown = "\n".join(f"{problem.place}: {problem.reason}" for problem in problems[:_SHOWN_PROBLEMS]) or "it is empty"
            raise DataError(f"{path}: not one trajectory could be read of it:\n{shown}\nExpected the format of DRAG's collector.")
        counts = {"finished": num_imported, **count_problems(problems)}
        folder.finish(counts)
    return counts


def export_trajectories(source: Path, path: Path) -> int:
    """Write all trajectories of a folder of Parquet files as lines of DRAG's format; returns how many.

    Raises:
        DataError: there is none, or a file cannot be read.
    """
    num_exported = 0
    with whole_or_absent(path) as scratch, scratch.open("w", encoding="utf-8") as lines:
        for part in check_files(source):
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches(_BATCH_RECORDS, columns=schemas.TRAJECTORIES.names):
                    for row in batch.to_pylist():
                        lines.write(json.dumps(to_record(schemas.to_trajectory(row)), ensure_ascii=False) + "\n")
                        num_exported += 1
    return num_exported


def _keep_problems(read: Iterator[Trajectory | Problem], problems: list[Problem]) -> Iterator[Trajectory]:
    for item in read:
        if isinstance(item, Problem):
            problems.append(item)
        else:
            yield item
