"""Trajectories of another program into a run, and a run's trajectories out of it, in any format of `process.interchange`."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.tasks import ORDERING
from drag_ray.corpus.problems import Problem, count_problems
from drag_ray.corpus.text import to_printable
from drag_ray.errors import DataError
from drag_ray.process.interchange import INTERCHANGES, InterchangeName
from drag_ray.process.interchange_format import load_interchange
from drag_ray.process.trajectories import check_files
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs.address import Address
from drag_ray.stage_runs.damage import find_damage
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity, compute_file_fingerprint, write_jsonl, write_parquet
from drag_ray.storage.file_access import list_folder, reading
from drag_ray.types import Trajectory

_BATCH_RECORDS = 2_000
_SHOWN_PROBLEMS = 3


def import_trajectories(
    path: Path, run_dir: Path, address: Address, config: AgentConfig, format_name: InterchangeName = "drag"
) -> dict[str, int]:
    """Make a file or folder of trajectories the finished collect stage of a run; what is none goes to its `problems.jsonl`.

    Returns:
        Counts: how many were imported (finished), how many lines or files were set aside, and of what kinds.

    Raises:
        DataError: there is nothing at `path`, or no trajectory that can be read.
    """
    interchange = load_interchange(format_name)
    if not path.exists():
        raise DataError(
            f"{path}: no such file or folder. Give trajectories in the format {format_name!r}, or name theirs with --from."
        )
    if interchange.read is None:
        raise DataError(f"{path}: {interchange.refusal}")
    command = f"drag-ray import {path} --from {format_name} --run-dir {run_dir}"
    collect_dir = address.locate(run_dir)
    options = {"format": format_name} | ({"agent": config.model_dump(mode="json")} if interchange.rebuilds else {})
    identity = Identity("collect", options, _fingerprint(path), command=to_printable(command), address=str(address))
    problems: list[Problem] = []
    num_imported = 0
    with StageFolder(collect_dir, identity, find_damage(collect_dir)) as folder:
        read = _keep_problems(interchange.read(path, config), problems)
        for number, batch in enumerate(iter(lambda: list(islice(read, _BATCH_RECORDS)), [])):
            table = schemas.to_table(batch, schemas.TRAJECTORIES)
            write_parquet(folder.path / "trajectories" / f"part-{number:05d}.parquet", table)
            num_imported += len(batch)
        write_jsonl(folder.path / "problems.jsonl", [asdict(problem) for problem in problems])
        if not num_imported:
            shown = "\n".join(f"{problem.place}: {problem.reason}" for problem in problems[:_SHOWN_PROBLEMS]) or "it is empty"
            raise DataError(
                f"{path}: not one trajectory could be read of it:\n{shown}\nExpected the format {format_name!r} (--from)."
            )
        counts = {"finished": num_imported, **count_problems(problems)}
        folder.finish(counts)
    return counts


def export_trajectories(
    source: Path, path: Path, format_name: InterchangeName = "drag", policy: str = "", index_dir: Path | None = None
) -> int:
    """Write all trajectories of a folder of Parquet files in a format; returns how many.

    Args:
        source: the folder.
        path: the file or folder to write.
        format_name: how it is written.
        policy: writes those of this policy of an evaluation alone.
        index_dir: that of the index stage, for formats that say what is on a page.

    Raises:
        DataError: there is none, a file cannot be read, a folder to write stands there already, or the format wants others.
        SearchIndexError: the format says what is on a page, and the index does not have it.
    """
    interchange = load_interchange(format_name)
    read = _read_policy(source, policy) if policy else _read_all(source)
    if not interchange.has_orders:
        read = _refuse_orders(read, format_name)
    if not interchange.reads_pages:
        return interchange.write(read, path)
    if index_dir is None:
        raise DataError(f"{path}: the format {format_name} says what is on a page; name the run with its index.")
    searcher = Searcher(index_dir / "search_index")
    return interchange.write(read, path, searcher.page)


def _refuse_orders(read: Iterator[Trajectory], format_name: InterchangeName) -> Iterator[Trajectory]:
    """The same; an order of candidates would pass for a search there."""
    for trajectory in read:
        if trajectory.task in ORDERING:
            fitting = ", ".join(name for name in INTERCHANGES if load_interchange(name).has_orders)
            raise DataError(
                f"trajectory {trajectory.id!r} puts candidates in order, for which the format {format_name} has no place; it "
                f"holds searches and answers. Export it with --to {fitting}."
            )
        yield trajectory


def _read_policy(source: Path, policy: str) -> Iterator[Trajectory]:
    others: set[str] = set()
    for trajectory in _read_all(source):
        if trajectory.provenance.policy == policy:
            yield trajectory
        others.add(trajectory.provenance.policy)
    if policy not in others:
        raise DataError(f"{source}: no rollout of policy {policy!r}, expected one of {', '.join(sorted(others))}.")


def _read_all(source: Path) -> Iterator[Trajectory]:
    for part in check_files(source):
        with reading(part), pq.ParquetFile(part) as file:
            for batch in file.iter_batches(_BATCH_RECORDS):
                table = schemas.upgrade(pa.Table.from_batches([batch])).select(schemas.TRAJECTORIES.names)
                yield from map(schemas.to_trajectory, table.to_pylist())


def _fingerprint(path: Path) -> dict[str, str]:
    """The fingerprint of the file, or of each regular file in the folder."""
    files = [file for file in list_folder(path) if file.is_file() and not file.is_symlink()] if path.is_dir() else [path]
    return {to_printable(file.name): compute_file_fingerprint(file) for file in files if file.is_file()}


def _keep_problems(read: Iterator[Trajectory | Problem], problems: list[Problem]) -> Iterator[Trajectory]:
    for item in read:
        if isinstance(item, Problem):
            problems.append(item)
        else:
            yield item
