"""Parsing of JSON that others may have written, so that all that is wrong with it is a ValueError."""

import json
from collections.abc import Callable
from typing import Any


def parse_json(
    text: str | bytes, *, parse_float: Callable[[str], Any] | None = None, parse_constant: Callable[[str], Any] | None = None
) -> Any:
    """The value of a JSON text; the arguments are those of `json.loads`. Raises ValueError where it is not in UTF-8; as
    `json.JSONDecodeError` where it is not JSON, or nested more deeply than Python follows."""
    try:
        return json.loads(text, parse_float=parse_float, parse_constant=parse_constant)  # noqa: TID251
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", "", 0) from None
