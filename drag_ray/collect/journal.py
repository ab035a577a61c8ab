"""Where trajectories are kept while a run goes on: whole Parquet files that appear one by one.

    trajectories/   finished rollouts, part-*.parquet
    failures/       rollouts that failed in the latest attempt, to be run again; part-*.parquet
    claims/         one empty file for each chunk that an engine began in this attempt

A file appears when it is whole, so a kill loses at most the rows of the last `flush_s` seconds and never
leaves half a file. The ids in `trajectories/` are the only truth about what has finished.
"""

import time
import uuid
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray import artifacts, schemas
from drag_ray.types import ActionKind, Trajectory

TRAJECTORIES_DIR_NAME = "trajectories"
FAILURES_DIR_NAME = "failures"
CLAIMS_DIR_NAME = "claims"
CORRUPT_DIR_NAME = "corrupt"


def begin_attempt(run_dir: Path) -> int:
    """Make the folders, forget the claims and failures of an earlier attempt, and set unreadable files aside.

    Returns:
        the number of files set aside; their rollouts count as not finished and run again.
    """
    num_corrupt = 0
    for path in sorted((run_dir / TRAJECTORIES_DIR_NAME).glob("*.parquet")):
        try:
            pq.read_metadata(path)
        except (pa.ArrowInvalid, OSError):
            num_corrupt += 1
            (run_dir / CORRUPT_DIR_NAME).mkdir(exist_ok=True)
            path.rename(run_dir / CORRUPT_DIR_NAME / path.name)
    for name in (TRAJECTORIES_DIR_NAME, FAILURES_DIR_NAME, CLAIMS_DIR_NAME):
        (run_dir / name).mkdir(parents=True, exist_ok=True)
    for path in (run_dir / FAILURES_DIR_NAME).iterdir():
        path.unlink()
    forget_claims(run_dir)
    return num_corrupt


def forget_claims(run_dir: Path) -> None:
    """Begin to count chunks anew."""
    for path in (run_dir / CLAIMS_DIR_NAME).iterdir():
        path.unlink()


def read_finished_ids(run_dir: Path) -> set[str]:
    """The ids of all rollouts that have finished and are on disk."""
    return _read_ids(run_dir / TRAJECTORIES_DIR_NAME)


def read_failed_ids(run_dir: Path) -> set[str]:
    """The ids of all rollouts that failed in this attempt."""
    return _read_ids(run_dir / FAILURES_DIR_NAME)


def read_trajectories(run_dir: Path) -> pa.Table:
    """All finished trajectories of a run, in order of their ids.

    Raises:
        DataError: a file cannot be read or is of another schema.
    """
    paths = sorted((run_dir / TRAJECTORIES_DIR_NAME).glob("*.parquet"))
    tables = [schemas.read_table(path, schemas.TRAJECTORIES) for path in paths]
    return pa.concat_tables(tables or [schemas.TRAJECTORIES.empty_table()]).sort_by("id")


def count_outcomes(run_dir: Path) -> dict[str, int]:
    """Figures over all finished trajectories of a run: found (evidence within `top_k`), turns, invalid replies, tokens."""
    paths = list((run_dir / TRAJECTORIES_DIR_NAME).glob("*.parquet"))
    if not paths:
        return {"found": 0, "turns": 0, "invalid_replies": 0, "completion_tokens": 0}
    turn = pl.element().struct
    turns = pl.scan_parquet(paths).select("turns")
    totals = turns.select(
        found=pl.col("turns").list.eval(turn["rank_score"] > 0).list.any().sum(),
        turns=pl.col("turns").list.len().sum(),
        invalid_replies=pl.col("turns").list.eval((turn["action"] == ActionKind.INVALID.value).cast(int)).list.sum().sum(),
        completion_tokens=pl.col("turns").list.eval(turn["completion_token_ids"].list.len().cast(int)).list.sum().sum(),
    )
    return {name: int(value or 0) for name, value in totals.collect(engine="streaming").row(0, named=True).items()}


def claim(run_dir: Path, chunk: int) -> bool:
    """Note that this chunk is begun. False if it was begun before in this attempt: its engine died and Ray gives it out again."""
    try:
        (run_dir / CLAIMS_DIR_NAME / str(chunk)).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _read_ids(folder: Path) -> set[str]:
    ids: set[str] = set()
    for path in folder.glob("*.parquet"):
        ids.update(pq.read_table(path, columns=["id"])["id"].to_pylist())
    return ids


class Journal:
    """Writes the trajectories of one engine.

    Args:
        run_dir: the stage folder, on storage that all nodes share.
        flush_s: seconds between two files.
    """

    def __init__(self, run_dir: Path, flush_s: float) -> None:
        self._run_dir = run_dir
        self._flush_s = flush_s
        self._rows: dict[str, list[Trajectory]] = {TRAJECTORIES_DIR_NAME: [], FAILURES_DIR_NAME: []}
        self._flushed_at = time.monotonic()

    def add(self, trajectory: Trajectory) -> None:
        """Take a trajectory; it is on disk at the latest after `flush_s` seconds in which others arrive, or at `flush`."""
        self._rows[FAILURES_DIR_NAME if trajectory.error else TRAJECTORIES_DIR_NAME].append(trajectory)
        if time.monotonic() - self._flushed_at >= self._flush_s:
            self.flush()

    def flush(self) -> None:
        """Write everything that is held.

        Raises:
            ArtifactError: it cannot be written; nothing of it is dropped.
        """
        for name, rows in self._rows.items():
            if rows:
                path = self._run_dir / name / f"part-{uuid.uuid4().hex}.parquet"
                artifacts.write_parquet(path, schemas.to_table(rows, schemas.TRAJECTORIES))
                rows.clear()
        self._flushed_at = time.monotonic()
