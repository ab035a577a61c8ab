"""One Arrow schema for each table on disk, the conversion of records to and from it, and the check.

Every table file carries `SCHEMA_VERSION` in its metadata, so that a file of another version is
refused by name instead of failing on a column. Tables of the version before are read as if they were of this one.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray.errors import DataError
from drag_ray.storage.file_access import reading
from drag_ray.types import Answer, Page, Provenance, Question, QuestionSearch, Ranking, Reply, ToolCall, Trajectory, Turn

SCHEMA_VERSION = "11"
EARLIER_VERSION = "10"
"""Read too. Its tables of trajectories alone differ: fields that are in groups now stood side by side (`PATHS`, `TURN_PATHS`)."""

_PLAIN = {str, int, float, bool, NoneType}
"""Types of values that stand in a row as they are."""
_ARROW = {str: pa.string(), int: pa.int32(), float: pa.float32(), bool: pa.bool_()}
_WIDE = {"seed": pa.int64()}
_Record = TypeVar("_Record")
_Convert = Callable[[Mapping[str, Any]], dict[str, Any]]


def _list_columns(record_type: Any) -> list[tuple[str, pa.DataType]]:
    return [(name, _WIDE.get(name) or _to_arrow(hint)) for name, hint in get_type_hints(record_type).items()]


def _to_arrow(hint: Any) -> pa.DataType:
    if get_origin(hint) is tuple:
        return pa.list_(_to_arrow(get_args(hint)[0]))
    [kind] = {*(get_args(hint) or (hint,))} - {NoneType}
    if dataclasses.is_dataclass(kind):
        return pa.struct(_list_columns(kind))
    return _ARROW[str if issubclass(kind, Enum) else kind]


def _versioned(fields: list[tuple[str, pa.DataType]], name: str) -> pa.Schema:
    return pa.schema(fields, metadata={"drag_ray.table": name, "drag_ray.schema_version": SCHEMA_VERSION})


PAGES = _versioned(_list_columns(Page), "pages")
QUESTIONS = _versioned(_list_columns(Question), "questions")
TRAJECTORIES = _versioned(_list_columns(Trajectory), "trajectories")
LINKS = _versioned([("file", pa.string()), ("page_number", pa.int32()), ("links", pa.list_(pa.string()))], "links")
NEAR_DUPLICATES = _versioned(
    [("file", pa.string()), ("page_number", pa.int32()), ("numbers", pa.list_(pa.int32()))], "near-duplicates"
)


def name_paths(group: str, record_type: Any, *flat: str) -> dict[str, str]:
    """The paths of the fields of a group, by the names that they have side by side: their own, unless there are others."""
    names = [field.name for field in dataclasses.fields(record_type)]
    return {one: f"{group}.{name}" for one, name in zip(flat or names, names, strict=True)}


PATHS = {
    **name_paths("final_answer", Answer, "final_answer", "citations"),
    **name_paths(
        *("question_search", QuestionSearch),
        *("query_mode", "question_weight", "question_words", "question_hits", "question_rank"),
    ),
    **name_paths("provenance", Provenance),
}
"""The places of a trajectory's fields that are in groups, by their names where all stand side by side: in frames, in formats of
other programs, and in tables of the version before."""
TURN_PATHS = {
    **name_paths("reply", Reply),
    **name_paths("ranking", Ranking, "hits", "evidence_rank", "rank_score", "search_s", "partial_search"),
    **name_paths("answer", Answer, "answer", "citations"),
    **name_paths("call", ToolCall, "tool", "arguments", "tool_error", "tool_s"),
}
"""As above, of a turn."""
_EARLIER_COLUMN = "question_hits"
"""of no table but trajectories of the version before"""


def to_row(record: Any) -> dict[str, Any]:
    """A frozen record as a plain dictionary, enums as their values, nested records included."""
    return {
        name: value if type(value := getattr(record, name)) in _PLAIN else _to_plain(value)  # a trajectory has hundreds
        for name in _list_fields(type(record))
    }


@cache
def _list_fields(record_type: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(record_type))


def _to_plain(value: Any) -> Any:
    if isinstance(value, tuple):
        if value and isinstance(value[0], int | float):  # thousands of tokens
            return list(value)
        return [item if type(item) in _PLAIN else _to_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else to_row(value)


def to_table(records: Iterable[Any], schema: pa.Schema) -> pa.Table:
    """Records as an Arrow table of `schema`."""
    return pa.Table.from_pylist([to_row(record) for record in records], schema=schema)


def to_question(row: Mapping[str, Any]) -> Question:
    """The question of one row of a `QUESTIONS` table."""
    return from_row(Question, row)


def to_trajectory(row: Mapping[str, Any]) -> Trajectory:
    """The trajectory of one row of a `TRAJECTORIES` table, turns and hits included."""
    return from_row(Trajectory, row)


def from_row(record_type: type[_Record], row: Mapping[str, Any]) -> _Record:
    """The record that `to_row` made a row of.

    Raises:
        KeyError: a field of several values is missing.
        TypeError: another field is missing, or is none.
    """
    values = dict(row)
    for name, parse in _list_parsers(record_type).items():
        values[name] = parse(values[name])
    return record_type(**values)


@cache
def _list_parsers(record_type: type) -> dict[str, Callable[[Any], Any]]:
    """Parsers of fields, by name, of those that do not stand in a row as they are."""
    parsers = {name: _find_parser(hint) for name, hint in get_type_hints(record_type).items()}
    return {name: parse for name, parse in parsers.items() if parse}


def _find_parser(hint: Any) -> Callable[[Any], Any] | None:
    if get_origin(hint) is tuple:
        parse = _find_parser(get_args(hint)[0])
        return (lambda values: tuple(map(parse, values))) if parse else tuple
    if not isinstance(hint, type):
        return None
    return partial(from_row, hint) if dataclasses.is_dataclass(hint) else hint if issubclass(hint, Enum) else None


def check(found: pa.Schema, expected: pa.Schema, path: Path) -> None:
    """Compare the schema of the file at `path` with the expected one.

    Raises:
        DataError: names the file, the first column that is missing or of another type, and the remedy.
    """
    metadata, wanted = found.metadata or {}, expected.metadata or {}
    table = wanted[b"drag_ray.table"].decode()
    version = metadata.get(b"drag_ray.schema_version")
    if version not in (None, SCHEMA_VERSION.encode(), EARLIER_VERSION.encode()):
        raise DataError(
            f"{path}: {table} of schema version {version.decode()}, this code reads version {SCHEMA_VERSION}. "
            "Run the stage that wrote it again."
        )
    found = upgrade(found.empty_table()).schema
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
            found = pq.read_schema(path)
            check(found, schema, path)
            wanted = None if _EARLIER_COLUMN in found.names else columns or schema.names
            table = upgrade(pq.read_table(path, columns=wanted))
            return table.select(columns or schema.names).replace_schema_metadata(schema.metadata)
        except MemoryError:
            raise
        except FileNotFoundError as error:
            raise DataError(f"{path}: no such file. Run the stage that writes it first.") from error
        except (pa.ArrowException, OSError) as error:
            problem = str(error).partition("\n")[0]
            raise DataError(f"{path}: not a readable Parquet file ({problem}). Remove it and write it again.") from error


def read_columns(file: pq.ParquetFile, columns: Sequence[str], of_turns: Sequence[str] = ()) -> pa.Table:
    """Columns of a table of trajectories side by side (see `PATHS`), whichever version wrote it; `turns` is the last of them.

    Args:
        columns: their names, and of lists of records the one field that is read: `question_hits.list.element.rank`.
        of_turns: those of each turn.
    """
    is_earlier = _EARLIER_COLUMN in file.schema_arrow.names
    paths, turn_paths = ({}, {}) if is_earlier else (PATHS, TURN_PATHS)
    wanted = [_locate(column, paths) for column in columns]
    wanted += [f"turns.list.element.{_locate(column, turn_paths)}" for column in of_turns]

    def choose(fields: Mapping[str, pa.Array], paths: Mapping[str, str], names: Sequence[str]) -> dict[str, pa.Array]:
        flat = flatten(fields, paths, _list_parts)
        return {name: flat[name] for name in (column.partition(".")[0] for column in names)}

    of_trajectory = partial(choose, paths=paths, names=[*columns, *(["turns"] if of_turns else ())])
    return _convert(file.read(columns=wanted), of_trajectory, partial(choose, paths=turn_paths, names=of_turns))


def _locate(column: str, paths: Mapping[str, str]) -> str:
    name, dot, rest = column.partition(".")
    return paths.get(name, name) + dot + rest


def upgrade(table: pa.Table) -> pa.Table:
    """A table of trajectories of this version or the one before as one of this version."""
    if _EARLIER_COLUMN not in table.column_names:
        return table
    grouping = partial(group, build=_to_struct)
    return _convert(
        table, partial(grouping, paths=PATHS, record_type=Trajectory), partial(grouping, paths=TURN_PATHS, record_type=Turn)
    )


def _convert(table: pa.Table, of_trajectory: _Convert, of_turn: _Convert) -> pa.Table:
    """The table with other fields made of those of its rows and of their turns."""
    batches = []
    for batch in table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]:
        columns = of_trajectory(dict(zip(batch.schema.names, batch.columns, strict=True)))
        turns: Any = columns.get("turns")
        if isinstance(turns, pa.ListArray) and isinstance(turns.values, pa.StructArray):
            columns["turns"] = pa.ListArray.from_arrays(turns.offsets, _to_struct(of_turn(_list_parts(turns.values))))
        batches.append(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))
    return pa.Table.from_batches(batches)


def _list_parts(array: pa.StructArray) -> dict[str, pa.Array]:
    return dict(zip((field.name for field in array.type), array.flatten(), strict=True))


def _to_struct(fields: Mapping[str, pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(fields.values()), list(fields))


def flatten(
    fields: Mapping[str, Any], paths: Mapping[str, str], list_fields: Callable[[Any], Mapping[str, Any]] = dict
) -> dict[str, Any]:
    """The fields of a row, or columns of many, side by side.

    Args:
        paths: `PATHS` or `TURN_PATHS`.
        list_fields: gives those of a group.
    """
    groups = {path.partition(".")[0] for path in paths.values()}
    inner = {f"{name}.{part}": value for name in groups & fields.keys() for part, value in list_fields(fields[name]).items()}
    rest = {name: value for name, value in fields.items() if name not in groups}
    return rest | {name: inner[path] for name, path in paths.items() if path in inner}


def group(
    fields: Mapping[str, Any], paths: Mapping[str, str], record_type: Any, build: Callable[[dict[str, Any]], Any] = dict
) -> dict[str, Any]:
    """The fields of a record, in its order and groups, of those that stand side by side (see `flatten`); others are left out.

    Args:
        build: makes a group.
    """
    parts: dict[str, dict[str, Any]] = {}
    for name, path in paths.items():
        if name in fields:
            place, _, part = path.partition(".")
            parts.setdefault(place, {})[part] = fields[name]
    rest = {name: value for name, value in fields.items() if name not in paths}
    found = rest | {place: build(inner) for place, inner in parts.items()}
    return {field.name: found[field.name] for field in dataclasses.fields(record_type) if field.name in found}
