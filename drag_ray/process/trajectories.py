"""Trajectories as the process stage reads them: checked files, unfit records set aside and counted, decoded conversations."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.agent.protocols.registry import KNOWN_PROTOCOLS
from drag_ray.agent.tasks import ANSWERING
from drag_ray.errors import DataError
from drag_ray.process.rewards import compute_added_recall, compute_answer_rewards
from drag_ray.storage.file_access import list_folder, reading
from drag_ray.storage.json_text import parse_json

MESSAGES = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))
"""A conversation: a list of {"role", "content"}, images within the content (see `IMAGE_MARK`)."""

IMAGE_MARK = "\ufdd0"
"""Stands before and after the key of an image within a content; Unicode reserves it for such use, so that no text holds it."""


def decode_conversations(texts: pl.Series) -> pl.Series:
    """Conversations from their JSON texts, null where a text is not a list of messages with a role and a content.

    A content is a text or a list of text parts and image parts.
    """
    try:
        decoded = texts.str.json_decode(MESSAGES)
    except pl.exceptions.ComputeError:  # raised for the whole column if one text is malformed or has image parts
        decoded = pl.Series(texts.name, [_decode(text) for text in texts], dtype=MESSAGES)
    message = pl.element().struct
    is_whole = decoded.list.eval(message.field("role").is_not_null() & message.field("content").is_not_null()).list.all()
    return pl.select(pl.when(is_whole).then(decoded)).to_series().alias(texts.name)


def _decode(text: str) -> list[dict[str, str]] | None:
    try:
        return [{"role": str(item["role"]), "content": _join_parts(item["content"])} for item in parse_json(text)]
    except (ValueError, TypeError, KeyError):
        return None


def _join_parts(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(
        f"{IMAGE_MARK}{part['image']}{IMAGE_MARK}" if part["type"] == "image" else str(part["text"]) for part in content
    )


def compute_states(conversations: pl.Expr, reply_positions: pl.Expr) -> pl.Expr:
    """For each reply of a conversation a 64-bit fingerprint of the messages before it.

    Equal fingerprints mean the same state, the same messages in the same order.  They are comparable within one version of
    Polars, so within one run of the stage and not beyond.

    Args:
        conversations: of type `MESSAGES`.
        reply_positions: for each conversation where its replies are, each at least 1.
    """
    placed = pl.struct(pl.element(), pl.int_range(pl.len()))
    return conversations.list.eval(placed.hash().cum_sum()).list.gather(reply_positions - 1, null_on_oob=True)


TRAIN_SPLIT = "train"
_VERIFY = "Run: python jobs/collect.py --verify"

_COLUMNS = (
    *("id", "question_id", "question", "evidence", "answers", "category", "group", "split", "sample_index", "preset"),
    *("messages", "protocol", "stop_reason", "final_answer", "top_k", "depth", "error", "hinted"),
    *("query_mode", "question_rank", "question_hits.list.element.rank", "baseline", "prompt_set", "tools", "task"),
)
# The tokens of prompts and the pages of the hits make most of a file's bytes; of the hits only the number is needed here.
_TURN_COLUMNS = (
    *("step", "num_prompt_messages", "reasoning", "action", "query", "evidence_rank", "finish_reason", "error"),
    *("completion_token_ids", "completion_logprobs", "tool", "tool_error", "tool_s", "hidden_images"),
    *("hidden_messages", "prompt_digest"),
    "hits.list.element.rank",
)
_SETTINGS = {"agent_fingerprint": "agent configurations (prompt, protocol, pages shown)", "index_fingerprint": "search indexes"}


@dataclass(frozen=True)
class TrainingTrajectories:
    """Trajectories to train on, and how many records were left out for which reason.

    `frame` has a row a trajectory, in the order of questions and samples, those of baselines and those with a hint after the
    policy's own. Its `messages` are decoded; its `turns` are structs of step, num_prompt_messages, reasoning, action, query,
    evidence_rank, finish_reason, error, completion_token_ids, completion_logprobs, tool, tool_error, tool_s, hidden_images,
    hidden_messages, prompt_digest and num_hits; its `states` say what each turn replied to (see `compute_states`), its `are_last`
    whether that asked for the answer, and its `replies` what the model wrote; its `top_k` is the one to score with, its
    `answer_reward` the ANLS* of the final answer, and its `query_quality` null, as no judge has been asked (see `judging`).
    """

    frame: pl.DataFrame
    left_out: Counter[str]


@dataclass(frozen=True)
class FileSize:
    """Records of a file, and bytes of their conversations."""

    num_records: int
    num_bytes: int


def check_files(folder: Path) -> dict[Path, FileSize]:
    """The Parquet files of `folder`, each of which holds `schemas.TRAJECTORIES`, and their sizes. Raises DataError where there is
    none, or one of them is of another schema, and ArtifactError where the folder or a file cannot be read."""
    paths = list_folder(folder, "*.parquet")
    if not paths:
        raise DataError(f"{folder}: no *.parquet file with trajectories. Run: python jobs/collect.py")
    sizes = {}
    for path in paths:
        with reading(path, _VERIFY), pq.ParquetFile(path) as file:
            schemas.check(file.schema_arrow, schemas.TRAJECTORIES, path)
            sizes[path] = FileSize(file.metadata.num_rows, _count_bytes(file.metadata))
    return sizes


def _count_bytes(metadata: pq.FileMetaData) -> int:
    groups = (metadata.row_group(place) for place in range(metadata.num_row_groups))
    columns = (group.column(place) for group in groups for place in range(group.num_columns))
    return sum(column.total_uncompressed_size for column in columns if column.path_in_schema == "messages")


def check_settings(paths: Sequence[Path]) -> None:
    """Check that all trajectories were collected with one agent configuration and from one search index. Raises DataError: names
    two files that differ, and in what."""
    seen: dict[str, tuple[str, Path]] = {}
    for path in paths:
        for name, value in _list_settings(path):
            first_value, first_path = seen.setdefault(name, (value, path))
            if value != first_value:
                raise DataError(
                    f"{path}: trajectories of different {_SETTINGS[name]} in one set ({name} {value!r} here, {first_value!r} in "
                    f"{first_path.name}). Collect them anew into one run, process them apart, or allow it with "
                    "--process.allow-mixed."
                )


def _list_settings(path: Path) -> Iterator[tuple[str, str]]:
    """The settings of a file and their values, from its statistics where these tell that there is one value."""
    with reading(path, _VERIFY), pq.ParquetFile(path) as file:
        for group in range(file.metadata.num_row_groups):
            columns = (file.metadata.row_group(group).column(place) for place in range(file.metadata.num_columns))
            for column in columns:
                name, bounds = column.path_in_schema.rpartition(".")[2], column.statistics
                if name in _SETTINGS:
                    known = [bounds.min] if bounds and bounds.has_min_max and bounds.min == bounds.max else None
                    yield from ((name, value) for value in known or _list_values(file, group, column.path_in_schema))


def _list_values(file: pq.ParquetFile, group: int, path: str) -> list[str]:
    return file.read_row_group(group, [path]).flatten()[0].unique().to_pylist()


def read_records(paths: Sequence[Path], candidate_depth: int = 0) -> pl.DataFrame:
    """The records of the files, with the columns that the stage needs.

    `knows_question` says whether the question itself was searched, and found anything; `added_recall` what each turn adds to the
    candidates (see `compute_added_recall`). Raises ArtifactError where a file cannot be read. `candidate_depth`: pages of a
    search that are candidates; 0 where nobody asks: then none adds any.
    """
    records = pl.from_arrow(pa.concat_tables([_read_columns(path) for path in paths]))
    assert isinstance(records, pl.DataFrame)
    turn = pl.element().struct
    added = pl.col("turns").list.eval(turn.field("step") * 0.0)
    if candidate_depth:
        added = pl.Series(list(chain(*(_read_added_recall(path, candidate_depth) for path in paths))), dtype=pl.List(pl.Float64))
    return records.with_columns(
        added.alias("added_recall"),
        pl.col("question_hits").list.len() > 0,
        pl.col("turns").list.eval(
            pl.struct(*(turn.field(name) for name in _TURN_COLUMNS[:-1]), turn.field("hits").list.len().alias("num_hits"))
        ),
    ).rename({"id": "trajectory_id", "question_hits": "knows_question"})


def _read_columns(path: Path) -> pa.Table:
    with reading(path, _VERIFY):
        return schemas.read_columns(pq.ParquetFile(path), _COLUMNS, _TURN_COLUMNS)


def _read_added_recall(path: Path, depth: int) -> list[list[float]]:
    """Of each turn of each record. The pages of all rankings are most of a file, so they are read for this alone."""
    pages = ("list.element.file", "list.element.page_number")
    columns = ("evidence", *(f"question_hits.{name}" for name in pages))
    with reading(path, _VERIFY):
        rows = schemas.read_columns(pq.ParquetFile(path), columns, tuple(f"hits.{name}" for name in pages)).to_pylist()
    added: list[list[float]] = []
    for row in rows:
        searches = [_list_pages(turn["hits"]) for turn in row["turns"]]
        added.append(compute_added_recall(_list_pages(row["evidence"]), _list_pages(row["question_hits"]), searches, depth))
    return added


def _list_pages(records: Sequence[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(record["file"], record["page_number"]) for record in records]


def read_answers(path: Path) -> pl.DataFrame:
    """The finished training rollouts of a file: task, question, answers, final_answer, and turns, structs of action and query.
    Raises ArtifactError where the file cannot be read."""
    columns = ["task", "question", "answers", "final_answer", "error", "split"]
    with reading(path, _VERIFY):
        table = schemas.read_columns(pq.ParquetFile(path), columns, ("action", "query"))
    records = pl.from_arrow(table)
    assert isinstance(records, pl.DataFrame)
    return records.filter(pl.col("error") == "", pl.col("split") == TRAIN_SPLIT)


def select_trajectories(records: pl.DataFrame, top_k: int = 0) -> TrainingTrajectories:
    """The trajectories to train on.

    Left out, in this order: a second record of the same rollout (one that did not fail wins), failed rollouts, questions outside
    the training split, questions without evidence, records whose conversation cannot be read or lacks a reply. Raises DataError
    where `top_k` is beyond the recorded depth.

    Args:
        records: as of `read_records`, every record of their questions.
        top_k: pages to score with; 0 takes each trajectory's own.
    """
    failed = pl.col("error") != ""
    order = ("hinted", "baseline", "preset", "sample_index", "trajectory_id")
    ordered = records.sort(pl.col("question_id"), failed, *order)
    unique = ordered.unique("trajectory_id", keep="first", maintain_order=True)
    finished = unique.filter(~failed)
    train = finished.filter(pl.col("split") == TRAIN_SPLIT)
    by_answer = pl.col("task").is_in(ANSWERING) & (pl.col("answers").list.len() > 0)
    answerable = train.filter((pl.col("evidence").list.len() > 0) | by_answer)
    fitting = _add_conversations(answerable)
    left_out = Counter(
        repeated_records=records.height - unique.height,
        failed_rollouts=unique.height - finished.height,
        other_split=finished.height - train.height,
        unanswerable=train.height - answerable.height,
        malformed=answerable.height - fitting.height,
    )
    rewards = compute_answer_rewards(fitting["final_answer"], fitting["answers"])
    scored = _set_top_k(fitting, top_k).with_columns(rewards, query_quality=pl.lit(None, dtype=pl.Float64))
    return TrainingTrajectories(scored.drop("error", "split"), left_out)


def _add_conversations(trajectories: pl.DataFrame) -> pl.DataFrame:
    """Decode the messages, add states, are_last and replies; leaves out rows without a message of the assistant for each turn."""
    positions = pl.col("turns").list.eval(pl.element().struct.field("num_prompt_messages"))
    turns_of = pl.col("messages").list.gather(positions, null_on_oob=True)
    told = pl.element().struct.field("content")
    asks_for_answer = pl.any_horizontal(told.str.ends_with(protocol.final_request) for protocol in KNOWN_PROTOCOLS.values())
    return (
        trajectories.with_columns(decode_conversations(trajectories["messages"]))
        .filter(pl.col("messages").is_not_null(), positions.list.eval(pl.element() > 0).list.all())
        .with_columns(
            states=compute_states(pl.col("messages"), positions),
            are_last=pl.col("messages").list.gather(positions - 1, null_on_oob=True).list.eval(asks_for_answer),
            replies=turns_of.list.eval(
                pl.when(pl.element().struct.field("role") == "assistant").then(pl.element().struct.field("content"))
            ),
        )
        .filter(pl.col("replies").list.eval(pl.element().is_not_null()).list.all())
    )


def _set_top_k(trajectories: pl.DataFrame, top_k: int) -> pl.DataFrame:
    if not top_k:
        return trajectories
    too_shallow = trajectories.filter(pl.col("depth") < top_k)
    if not too_shallow.is_empty():
        raise DataError(
            f"process.top_k is {top_k}, but trajectory {too_shallow['trajectory_id'][0]!r} recorded ranks to a depth "
            f"of {too_shallow['depth'][0]} only. Choose process.top_k up to that depth, or collect again with a greater depth."
        )
    return trajectories.with_columns(top_k=pl.lit(top_k, dtype=pl.Int32))
