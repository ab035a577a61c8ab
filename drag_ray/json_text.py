"""The one way in which JSON is read that others may have written, so that all that is wrong with it is a ValueError."""

import json
from collections.abc import Callable
from typing import Any


def parse_json(
    text: str | bytes, *, parse_float: Callable[[str], Any] | None = None, parse_constant: Callable[[str], Any] | None = None
) -> Any:
    """The value of a JSON text; the arguments are those of `json.loads`.

    Raises:
        ValueError: it is not JSON, not in UTF-8, or nested more deeply than Python can follow.
    """
    try:
        return json.loads(text, parse_float=parse_float, parse_constant=parse_constant)
    except RecursionError:
        raise ValueError("its lists and objects are nested too deeply") from None
