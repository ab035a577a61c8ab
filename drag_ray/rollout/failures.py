"""Failures of a run, read from its folder: how often each rollout failed, and why; and when that is too much."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.errors import TooManyFailuresError
from drag_ray.rollout import journal
from drag_ray.rollout.folder import CORRUPT_DIR_NAME, FAILURES_DIR_NAME, PROBLEMS_NAME
from drag_ray.rollout.plan import Ended
from drag_ray.storage import artifacts
from drag_ray.storage.file_access import reading

ENGINE_DIED = "EngineDiedError: the engine's process died while this rollout ran"


@dataclass(frozen=True, slots=True)
class Failures:
    """The tries of one rollout that failed. `error` is the last one's; `engine_died` in any of them."""

    tries: int
    engine_died: bool
    error: str


@dataclass(frozen=True, slots=True)
class RolloutProblem:
    """A line of `problems.jsonl`: a rollout or a file (`place`), how often it was tried, and what happened (`reason`)."""

    place: str
    tries: int
    reason: str


def read_failures(run_dir: Path) -> dict[str, Failures]:
    """For the id of each rollout that ever failed its failures, over all attempts. Raises ArtifactError where a file cannot be
    read."""
    paths = journal.list_files(run_dir, FAILURES_DIR_NAME)
    if not paths:
        return {}
    rows = pl.concat([_read_tries(path) for path in paths]).sort("started_at", "error")
    totals = rows.group_by("id").agg(
        tries=pl.len(), engine_died=(pl.col("error") == ENGINE_DIED).any(), error=pl.col("error").last()
    )
    return {row["id"]: Failures(row["tries"], row["engine_died"], row["error"]) for row in totals.iter_rows(named=True)}


def _read_tries(path: Path) -> pl.DataFrame:
    with reading(path):
        return pl.DataFrame(schemas.read_columns(pq.ParquetFile(path), ("id", "error", "started_at")))


def find_exhausted(failures: Mapping[str, Failures], max_tries: int) -> set[str]:
    """The ids of rollouts that failed so often that they are not tried again."""
    return {rollout_id for rollout_id, failed in failures.items() if failed.tries >= max_tries}


def count_errors(failures: Mapping[str, Failures], ended: Ended) -> Counter[str]:
    """The number of rollouts that have not finished because of each error, the last one of each rollout."""
    return Counter(failed.error for rollout_id, failed in failures.items() if ended.get(rollout_id) is None)


def describe_errors(errors: Counter[str]) -> str:
    """The three commonest errors with their counts, a line each."""
    return "\n".join(f"  {count} x {error[:300]}" for error, count in errors.most_common(3))


def check_failure_rate(num_failed: int, num_rollouts: int, max_failure_rate: float, errors: Counter[str]) -> None:
    """Refuse that more than a share of some rollouts has failed. Raises TooManyFailuresError: names the share and the commonest
    errors."""
    if num_failed > max_failure_rate * num_rollouts:
        raise TooManyFailuresError(
            f"{num_failed} of {num_rollouts} rollouts failed, more than max_failure_rate {max_failure_rate:.0%}.\n"
            f"{describe_errors(errors)}\n"
            "Fix the cause, or raise rollout.max_failure_rate, and start the run again: it continues with the unfinished ones."
        )


def write_problems(run_dir: Path, max_tries: int) -> None:
    """Write down the files that were set aside, and every rollout that ever failed with what became of it."""
    artifacts.write_jsonl(run_dir / PROBLEMS_NAME, [asdict(problem) for problem in _list_problems(run_dir, max_tries)])


def _list_problems(run_dir: Path, max_tries: int) -> Iterator[RolloutProblem]:
    for path in journal.list_files(run_dir, CORRUPT_DIR_NAME):
        place = f"{CORRUPT_DIR_NAME}/{path.name}"
        yield RolloutProblem(place, 1, "its bytes have changed; its rollouts were run again")
    failures = read_failures(run_dir)
    finished_ids = journal.read_finished_ids(run_dir) if failures else set[str]()
    for rollout_id, failed in sorted(failures.items()):
        if rollout_id in finished_ids:
            outcome = "finished in a later try"
        elif failed.tries >= max_tries:
            outcome = "set aside; a larger rollout.max_tries tries it again"
        else:
            outcome = "not finished; starting the stage again goes on with it"
        yield RolloutProblem(f"rollout {rollout_id}", failed.tries, f"{failed.error}; {outcome}")
