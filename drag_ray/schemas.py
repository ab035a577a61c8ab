"""One Arrow schema for each table on disk, the conversion of records to and from it, and the check.

Every table file carries `SCHEMA_VERSION` in its metadata, so that a file of another version is
refused by name instead of failing on a column.
"""

import dataclasses
from collections.abc import Iterable
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.errors import DataError
from drag_ray.storage.file_access import reading
from drag_ray.types import ActionKind, Evidence, Hit, Page, Question, StopReason, Trajectory, Turn

SCHEMA_VERSION = "10"

_PLAIN = {str, int, float, bool, type(None)}
"""Types of values that stand in a row as they are."""

_EVIDENCE = pa.struct([("file", pa.string()), ("page_number", pa.int32())])
_HIT = pa.struct([("file", pa.string()), ("page_number", pa.int32()), ("rank", pa.int32()), ("score", pa.float32())])
_TURN = pa.struct(
    [
        ("step", pa.int32()),
        ("num_prompt_messages", pa.int32()),
        ("reasoning", pa.string()),
        ("action", pa.string()),
        ("query", pa.string()),
        ("hits", pa.list_(_HIT)),
        ("evidence_rank", pa.int32()),
        ("rank_score", pa.float32()),
        ("answer", pa.string()),
        ("citations", pa.list_(_EVIDENCE)),
        ("raw_text", pa.string()),
        ("prompt_token_ids", pa.list_(pa.int32())),
        ("completion_token_ids", pa.list_(pa.int32())),
        ("finish_reason", pa.string()),
        ("generate_s", pa.float32()),
        ("search_s", pa.float32()),
        ("error", pa.string()),
        ("completion_logprobs", pa.list_(pa.float32())),
        ("num_prompt_tokens", pa.int32()),
        ("num_completion_tokens", pa.int32()),
        ("partial_search", pa.bool_()),
        ("tool", pa.string()),
        ("arguments", pa.string()),
        ("tool_error", pa.string()),
        ("tool_s", pa.float32()),
        ("hidden_images", pa.list_(pa.int32())),
        ("hidden_messages", pa.list_(pa.int32())),
        ("prompt_digest", pa.string()),
    ]
)


def _versioned(fields: list[tuple[str, pa.DataType]], name: str) -> pa.Schema:
    return pa.schema(fields, metadata={"drag_ray.table": name, "drag_ray.schema_version": SCHEMA_VERSION})


PAGES = _versioned(
    [
        ("file", pa.string()),
        ("page_number", pa.int32()),
        ("total_pages", pa.int32()),
        ("text", pa.string()),
        ("text_source", pa.string()),
        ("image", pa.string()),
    ],
    "pages",
)
QUESTIONS = _versioned(
    [
        ("id", pa.string()),
        ("question", pa.string()),
        ("evidence", pa.list_(_EVIDENCE)),
        ("answers", pa.list_(pa.string())),
        ("category", pa.string()),
        ("group", pa.string()),
        ("split", pa.string()),
        ("images", pa.list_(pa.string())),
        ("candidates", pa.list_(_EVIDENCE)),
    ],
    "questions",
)
NEAR_DUPLICATES = _versioned(
    [
        ("file", pa.string()),
        ("page_number", pa.int32()),
        ("numbers", pa.list_(pa.int32())),
    ],
    "near-duplicates",
)
TRAJECTORIES = _versioned(
    [
        ("id", pa.string()),
        ("question_id", pa.string()),
        ("question", pa.string()),
        ("evidence", pa.list_(_EVIDENCE)),
        ("answers", pa.list_(pa.string())),
        ("category", pa.string()),
        ("group", pa.string()),
        ("split", pa.string()),
        ("sample_index", pa.int32()),
        ("seed", pa.int64()),
        ("preset", pa.string()),
        ("turns", pa.list_(_TURN)),
        ("messages", pa.string()),
        ("protocol", pa.string()),
        ("stop_reason", pa.string()),
        ("final_answer", pa.string()),
        ("citations", pa.list_(_EVIDENCE)),
        ("top_k", pa.int32()),
        ("depth", pa.int32()),
        ("model", pa.string()),
        ("adapter", pa.string()),
        ("agent_fingerprint", pa.string()),
        ("index_fingerprint", pa.string()),
        ("started_at", pa.string()),
        ("duration_s", pa.float32()),
        ("error", pa.string()),
        ("hinted", pa.bool_()),
        ("query_mode", pa.string()),
        ("question_weight", pa.float32()),
        ("question_words", pa.string()),
        ("question_hits", pa.list_(_HIT)),
        ("question_rank", pa.int32()),
        ("baseline", pa.string()),
        ("prompt_set", pa.int32()),
        ("policy", pa.string()),
        ("tools", pa.string()),
        ("task", pa.string()),
    ],
    "trajectories",
)


def to_row(record: Any) -> dict[str, Any]:
    """A frozen record as a plain dictionary, enums as their values, nested records included."""
    return {name: _to_plain(getattr(record, name)) for name in _list_fields(type(record))}


@cache
def _list_fields(record_type: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(record_type))


def _to_plain(value: Any) -> Any:
    if type(value) in _PLAIN:  # most are: a trajectory has hundreds
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        if value and isinstance(value[0], int | float):  # thousands of tokens
            return list(value)
        return [_to_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return to_row(value)
    return value


def to_table(records: Iterable[Any], schema: pa.Schema) -> pa.Table:
    """Records as an Arrow table of `schema`."""
    return pa.Table.from_pylist([to_row(record) for record in records], schema=schema)


def to_page(row: dict[str, Any]) -> Page:
    """The page of one row of a `PAGES` table."""
    return Page(**row)


def to_question(row: dict[str, Any]) -> Question:
    """The question of one row of a `QUESTIONS` table."""
    pages = {name: tuple(Evidence(**item) for item in row[name]) for name in ("evidence", "candidates")}
    parsed: dict[str, Any] = {**pages, "answers": tuple(row["answers"]), "images": tuple(row["images"])}
    return Question(**(row | parsed))


def to_trajectory(row: dict[str, Any]) -> Trajectory:
    """The trajectory of one row of a `TRAJECTORIES` table, turns and hits included."""
    parsed: dict[str, Any] = {
        "evidence": tuple(Evidence(**item) for item in row["evidence"]),
        "answers": tuple(row["answers"]),
        "turns": tuple(_to_turn(item) for item in row["turns"]),
        "citations": tuple(Evidence(**item) for item in row["citations"]),
        "stop_reason": StopReason(row["stop_reason"]),
        "question_hits": tuple(Hit(**item) for item in row["question_hits"]),
    }
    return Trajectory(**(row | parsed))


def _to_turn(row: dict[str, Any]) -> Turn:
    parsed: dict[str, Any] = {
        "action": ActionKind(row["action"]),
        "hits": tuple(Hit(**item) for item in row["hits"]),
        "citations": tuple(Evidence(**item) for item in row["citations"]),
        "prompt_token_ids": tuple(row["prompt_token_ids"]),
        "completion_token_ids": tuple(row["completion_token_ids"]),
        "completion_logprobs": tuple(row["completion_logprobs"]),
        "hidden_images": tuple(row["hidden_images"]),
        "hidden_messages": tuple(row["hidden_messages"]),
    }
    return Turn(**(row | parsed))


def check(found: pa.Schema, expected: pa.Schema, path: Path) -> None:
    """Compare the schema of the file at `path` with the expected one.

    Raises:
        DataError: names the file, the first column that is missing or of another type, and the remedy.
    """
    metadata, wanted = found.metadata or {}, expected.metadata or {}
    table = wanted[b"drag_ray.table"].decode()
    version = metadata.get(b"drag_ray.schema_version")
    if version is not None and version != SCHEMA_VERSION.encode():
        raise DataError(
            f"{path}: {table} of schema version {version.decode()}, this code reads version {SCHEMA_VERSION}. "
            "Run the stage that wrote it again."
        )
    for field in expected:
        position = found.get_field_index(field.name)
        if position < 0:
            raise DataError(
                f"{path}: no column {field.name!r} in this {table} table; it has {', '.join(found.names)}. "
                f"Expected columns: {', '.join(expected.names)}."
            )
        if found.field(position).type != field.type:
            raise DataError(
                f"{path}: column {field.name!r} of this {table} table is {found.field(position).type}, "
                f"expected {field.type}. Convert the column or write the table again."
            )


def read_table(path: Path, schema: pa.Schema, columns: list[str] | None = None) -> pa.Table:
    """Read and check one Parquet table.

    Raises:
        DataError: the file is missing, is not Parquet, or does not have the schema.
        ArtifactError: memory is used up.
    """
    with reading(path):
        try:
            check(pq.read_schema(path), schema, path)
            return pq.read_table(path, columns=columns or schema.names).replace_schema_metadata(schema.metadata)
        except MemoryError:
            raise
        except FileNotFoundError as error:
            raise DataError(f"{path}: no such file. Run the stage that writes it first.") from error
        except (pa.ArrowException, OSError) as error:
            problem = str(error).partition("\n")[0]
            raise DataError(f"{path}: not a readable Parquet file ({problem}). Remove it and write it again.") from error
