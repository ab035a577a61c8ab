"""The columns of training rows: their names are TRL's, their Arrow types follow from the types of the rows."""

from collections.abc import Iterable
from typing import Any, TypedDict, get_type_hints

import pyarrow as pa

from drag_ray.engine.generate import Message

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
"""A list of messages."""

MESSAGES_WITH_IMAGES = pa.list_(
    pa.struct([("role", pa.string()), ("content", pa.list_(pa.struct([("type", pa.string()), ("text", pa.string())])))])
)
"""A list of messages of text parts and image parts; the images themselves are named in order in the column `images`."""

_ARROW_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int32(),
    float: pa.float64(),
    bool: pa.bool_(),
    bool | None: pa.bool_(),
    list[int]: pa.list_(pa.int32()),
    list[float]: pa.list_(pa.float64()),
    list[bool]: pa.list_(pa.bool_()),
    list[str]: pa.list_(pa.string()),
    list[Message]: MESSAGES,
}


class Row(TypedDict, total=False):
    """The columns that a row of any format has where the layout of its run asks for it (see `layout`).

    The columns of a format itself are declared in a class that inherits from this one; each of its rows has all of them.
    """

    images: list[str]
    """keys of the images that its messages show, in order"""
    tools: str | None
    """functions that its protocol shows to the model, as JSON"""


def to_schema(row: type[Row]) -> pa.Schema:
    """The Arrow schema of the columns that every row of a type has, in the order in which they are declared."""
    columns = get_type_hints(row)
    return pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in columns.items() if name in row.__required_keys__])


def get_input_column(columns: Iterable[str]) -> str:
    """The column of what the model is shown: a prompt, or a conversation whose replies are learned in their places."""
    return "prompt" if "prompt" in columns else "messages"
