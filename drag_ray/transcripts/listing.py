"""Listing of trajectories: one row each, chosen and sorted before any transcript is read."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import polars as pl
import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.agent.scores import gain
from drag_ray.agent.tasks import ORDERING
from drag_ray.errors import ConfigError, DataError
from drag_ray.stage_runs.damage import refuse_damage
from drag_ray.storage.file_access import list_folder, reading
from drag_ray.types import ActionKind, Trajectory

Outcome = Literal["found", "not-found", "errors"]
OUTCOMES: dict[Outcome, str] = {"found": "found the evidence", "not-found": "did not find it", "errors": "failed"}
SortKey = Literal["id", "gain", "rank", "turns", "tokens", "seconds"]
SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)
_DESCENDING = ("gain", "turns", "tokens", "seconds")

_COLUMNS = (
    *("id", "question_id", "question", "sample_index", "preset", "policy", "task", "hinted", "depth", "question_rank"),
    *("stop_reason", "final_answer", "error", "duration_s"),
)
_TURN_COLUMNS = ("action", "evidence_rank", "rank_score", "num_completion_tokens")


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters, order and limit of a listing; empty filters are off.

    `question` is a part of the question's text, whatever its case; `id` a trajectory's id or its first part (as of a question).
    `gain` in `sort` is what the best search of a rollout is worth above the question itself (see `agent.scores.gain`). Raises
    ConfigError where there is no such outcome or order."""

    outcome: Outcome | None = None
    question: str = ""
    id: str = ""
    sort: SortKey = "id"
    limit: int = 50

    def __post_init__(self) -> None:
        for chosen, allowed in ((self.outcome or "found", tuple(OUTCOMES)), (self.sort, SORT_KEYS)):
            if chosen not in allowed:
                raise ConfigError(f"{chosen!r}: expected one of {', '.join(allowed)}.")


def list_files(path: Path) -> list[Path]:
    """The trajectory files below a run, a stage or a folder of rollouts, or the one file. Raises DataError where there are none;
    ArtifactError where a folder cannot be listed; and DamageError where they are of a finished stage, and not what it has
    written."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{path}: no such file or folder. Give a run, its collect or evaluate folder, or one parquet file.")
    root = path / "collect" if (path / "collect").is_dir() else path
    refuse_damage(root)
    engines = [place for place in list_folder(root / "rollouts") if place.is_dir()]
    # An evaluation that has finished keeps beside its engines' rollouts what was scored, which is of all policies.
    scored = [root] if (root / "trajectories").is_dir() else engines
    folders = [*(place / "trajectories" for place in scored), *(place / "failures" for place in (root, *engines))]
    files = [file for folder in folders for file in list_folder(folder, "*.parquet")]
    files = files or list_folder(path, "*.parquet")
    if not files:
        raise DataError(f"{path}: no trajectories there, nor in trajectories/. Run: python jobs/collect.py")
    return files


def read_listing(path: Path) -> pl.DataFrame:
    """One row a trajectory below `path`.

    Columns: path and row (where it is), policy, id, question_id, question, sample_index, preset, stop_reason, final_answer,
    error, hinted, task, depth, question_rank (of the evidence where the question itself is searched), outcome (found, not-found
    or errors), turns, searches, first_rank (in the first search), best_rank, gain, tokens (written), seconds. Raises DataError
    where there are no trajectories, or a file does not hold any, and ArtifactError where a folder cannot be listed.
    """
    listing = pl.concat([_read_file(file) for file in list_files(path)])
    if listing.is_empty():
        raise DataError(f"{path}: its files hold no trajectory. Run: python jobs/collect.py")
    return listing


def choose(listing: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """The rows that were asked for, in the order that was asked for, without the limit. Raises DataError where there are none."""
    wanted = pl.lit(True)
    if selection.outcome:
        wanted &= pl.col("outcome") == selection.outcome
    if selection.question:
        wanted &= pl.col("question").str.to_lowercase().str.contains(selection.question.lower(), literal=True)
    if selection.id:
        wanted &= (pl.col("id") == selection.id) | pl.col("id").str.starts_with(f"{selection.id}/")
    chosen = listing.filter(wanted)
    if chosen.is_empty():
        raise DataError(
            f"none of {listing.height:,} trajectories is wanted (outcome {selection.outcome or 'any'}, question "
            f"{selection.question!r}, id {selection.id!r}). Ask for less; ids look like {listing['id'][0]!r}."
        )
    key = {"rank": "best_rank"}.get(selection.sort, selection.sort)
    descending = [selection.sort in _DESCENDING, False, False]
    return chosen.sort(key, "id", "policy", descending=descending, nulls_last=True, maintain_order=True)


def read_trajectories(chosen: pl.DataFrame) -> Iterator[tuple[str, Trajectory]]:
    """The whole trajectories of these rows in their order, each with its policy's name. Raises DataError where a file cannot be
    read."""
    found = {}
    for (file,), rows in chosen.group_by("path"):
        table = schemas.read_table(Path(str(file)), schemas.TRAJECTORIES).take(rows["row"].to_arrow())
        found |= {(file, row): record for row, record in zip(rows["row"], table.to_pylist(), strict=True)}
    for file, row, policy in chosen.select("path", "row", "policy").iter_rows():
        yield policy, schemas.to_trajectory(found[file, row])


def _read_file(file: Path) -> pl.DataFrame:
    with reading(file, "Remove it and collect again."), pq.ParquetFile(file) as parquet:
        schemas.check(parquet.schema_arrow, schemas.TRAJECTORIES, file)
        records = pl.DataFrame(schemas.read_columns(parquet, _COLUMNS, _TURN_COLUMNS)).with_row_index("row")
    return (
        records.drop("turns")
        .join(_summarise_turns(records), on="row", how="left", maintain_order="left")
        .with_columns(pl.col("turns", "searches", "tokens").fill_null(0))
        .with_columns(
            path=pl.lit(str(file)),
            outcome=pl.when(pl.col("error") != "")
            .then(pl.lit("errors"))
            .otherwise(pl.when(pl.col("best_score") > 0).then(pl.lit("found")).otherwise(pl.lit("not-found"))),
            gain=pl.when(pl.col("searches") > 0).then(gain(pl.col("best_rank"), pl.col("question_rank"), pl.col("depth"))),
        )
        .drop("best_score")
        .rename({"duration_s": "seconds"})
    )


def _summarise_turns(records: pl.DataFrame) -> pl.DataFrame:
    turn = pl.col("turns").struct
    turns = records.explode("turns", empty_as_null=False).select(
        "row",
        "task",
        is_search=turn.field("action") == ActionKind.SEARCH.value,
        rank=turn.field("evidence_rank"),
        score=turn.field("rank_score"),
        tokens=turn.field("num_completion_tokens"),
    )
    # As agent.scores.list_ranked_turns has it.
    is_last = pl.col("is_search").cum_sum() == pl.col("is_search").sum()
    is_ranked = pl.col("is_search") & (~pl.col("task").is_in(ORDERING) | is_last)
    rank, score = (pl.col(name).filter(is_ranked) for name in ("rank", "score"))
    return turns.group_by("row").agg(
        turns=pl.len(),
        searches=pl.col("is_search").sum(),
        first_rank=rank.first(),
        best_rank=rank.min(),
        best_score=score.max(),
        tokens=pl.col("tokens").sum(),
    )
