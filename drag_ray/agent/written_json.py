"""JSON as models write it: with line ends within texts, and without the last brackets."""

import json
import re
from typing import Any

_DECODER = json.JSONDecoder(strict=False)
_TEXT_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+\\?(?:"|\Z)|[\[\]{}]', re.DOTALL)
_ENDS = ('"', "}", "]")
"""After anything else it is not known whether the last value is whole: 12 may be the beginning of 123."""


def decode_first(text: str) -> tuple[Any, str]:
    """The value at the start of a text, and what follows it, in linear time.

    Brackets that the end of the text lacks are added, where it ends with another bracket or a text.

    Raises:
        ValueError: there is none, or it is nested too deeply.
    """
    text = text.strip()
    try:
        try:
            value, end = _DECODER.raw_decode(text)
        except ValueError:
            if not text.endswith(_ENDS):
                raise
            value, end = _DECODER.raw_decode(text + _list_missing_brackets(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value, text[end:].strip()


def _list_missing_brackets(text: str) -> str:
    missing: list[str] = []
    for part in _TEXT_OR_BRACKET.findall(text):
        if part in ("{", "["):
            missing.append("}" if part == "{" else "]")
        elif missing and part == missing[-1]:
            missing.pop()
    return "".join(reversed(missing))
