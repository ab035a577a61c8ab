"""Trajectories as the process stage reads them: checked files, unfit records set aside and counted."""

import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.artifacts import compute_fingerprint
from drag_ray.errors import DataError

TRAIN_SPLIT = "train"

# Token ids and hits make most of a file's bytes; only the number of hits is needed here.
_TURN_FIELDS = (
    "step",
    "num_prompt_messages",
    "reasoning",
    "action",
    "query",
    "evidence_rank",
    "finish_reason",
    "error",
)


@dataclass(frozen=True)
class LoadedTrajectories:
    """Training trajectories, and how many records of the files were left out for which reason.

    `frame` has a row a trajectory; its `turns` are structs of step, num_prompt_messages, reasoning, action,
    query, evidence_rank, finish_reason, error and num_hits; its `states` say what each turn replied to (see
    `compute_states`); its `top_k` is the one to score with.
    """

    frame: pl.DataFrame
    num_repeated: int
    num_failed: int
    num_other_split: int
    num_malformed: int


def load_trajectories(folder: Path, top_k: int = 0) -> LoadedTrajectories:
    """Read every Parquet file of `folder` and keep the trajectories to train on.

    Left out, in this order: a second record of the same rollout (one that did not fail wins), failed rollouts,
    questions outside the training split, records whose conversation cannot be read or lacks a reply.

    Args:
        folder: holds files of `schemas.TRAJECTORIES`.
        top_k: pages to score with; 0 takes each trajectory's own.

    Raises:
        DataError: no file, a file of another schema, no trajectory left, or a `top_k` beyond the recorded depth.
    """
    paths = _check_files(folder)
    records = pl.scan_parquet(paths, glob=False).select(
        pl.col("id").alias("trajectory_id"),
        *("question_id", "question", "evidence", "answers", "split", "sample_index", "preset"),
        *("protocol", "top_k", "depth", "stop_reason", "error", "messages"),
        pl.col("turns").list.eval(
            pl.struct(
                *(pl.element().struct.field(name) for name in _TURN_FIELDS),
                pl.element().struct.field("hits").list.len().alias("num_hits"),
            )
        ),
    )
    failed = pl.col("error") != ""
    rollouts = records.collect()
    unique = rollouts.sort(failed, maintain_order=True).unique("trajectory_id", keep="first", maintain_order=True)
    finished = unique.filter(~failed)
    train = finished.filter(pl.col("split") == TRAIN_SPLIT)
    reply_positions = pl.col("turns").list.eval(pl.element().struct.field("num_prompt_messages"))
    states = [compute_states(*row) for row in train.select("messages", reply_positions).iter_rows()]
    fitting = train.with_columns(states=pl.Series(states, dtype=pl.List(pl.String))).filter(pl.col("states").is_not_null())
    loaded = LoadedTrajectories(
        frame=_set_top_k(fitting, top_k, folder).drop("error", "depth", "split"),
        num_repeated=rollouts.height - unique.height,
        num_failed=unique.height - finished.height,
        num_other_split=finished.height - train.height,
        num_malformed=train.height - fitting.height,
    )
    if loaded.frame.is_empty():
        raise DataError(
            f"{folder}: no trajectory to train on among {rollouts.height} records ({loaded.num_failed} failed, "
            f"{loaded.num_other_split} outside the split {TRAIN_SPLIT!r}, {loaded.num_malformed} malformed). "
            f"Collect with questions whose split is {TRAIN_SPLIT!r}: python jobs/collect.py"
        )
    return loaded


def compute_states(messages: str, reply_positions: list[int]) -> list[str] | None:
    """A fingerprint of the messages before each reply, by which two searches are known to start from the same state.

    Args:
        messages: a conversation as JSON, a list of {"role", "content"} texts.
        reply_positions: where in it the replies of the model are.

    Returns:
        One fingerprint a reply; None if the conversation cannot be read or a reply is not where it should be.
    """
    try:
        conversation = json.loads(messages)
        well_formed = all(isinstance(item["role"], str) and isinstance(item["content"], str) for item in conversation)
        replies = [conversation[position] for position in reply_positions]
    except (ValueError, TypeError, KeyError, IndexError):
        return None
    if not well_formed or any(reply["role"] != "assistant" for reply in replies):
        return None
    return [compute_fingerprint(conversation[:position]) for position in reply_positions]


def _check_files(folder: Path) -> list[Path]:
    paths = sorted(folder.glob("*.parquet"))
    if not paths:
        raise DataError(f"{folder}: no *.parquet file with trajectories. Run: python jobs/collect.py")
    for path in paths:
        try:
            found = pq.read_schema(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{path}: not a readable Parquet file ({error}). Remove it and collect again.") from error
        schemas.check(found, schemas.TRAJECTORIES, path)
    return paths


def _set_top_k(trajectories: pl.DataFrame, top_k: int, folder: Path) -> pl.DataFrame:
    if not top_k:
        return trajectories
    too_shallow = trajectories.filter(pl.col("depth") < top_k)
    if not too_shallow.is_empty():
        raise DataError(
            f"{folder}: process.top_k is {top_k}, but trajectory {too_shallow['trajectory_id'][0]!r} recorded ranks to a depth "
            f"of {too_shallow['depth'][0]} only. Choose process.top_k up to that depth, or collect again with a greater depth."
        )
    return trajectories.with_columns(top_k=pl.lit(top_k, dtype=pl.Int32))
