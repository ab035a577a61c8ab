"""The terms that have the form of a pattern. Polars matches them, in time that is linear in their letters."""

import polars as pl

from drag_ray.search.syntax import Pattern

MAX_FORM_CHARS = 64
"""A longer pattern stands for its `literal` alone: each letter of a term may be compared with each of a pattern."""
_REGEX_MARKS = frozenset("\\.+*?()|[]{}^$#&-~")


def match_pattern(pattern: Pattern, terms: pl.Series) -> pl.Series:
    """For each term whether it has the form of the pattern, or is its `literal`."""
    is_literal = (terms == pattern.literal) & bool(pattern.literal)
    if len(pattern.form) > MAX_FORM_CHARS:
        return is_literal
    return is_literal | terms.str.contains(f"^(?:{_to_regex(pattern.form)})$")


def _to_regex(form: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(char) or _escape(char) for char in form)


def _escape(char: str) -> str:
    return "\\" + char if char in _REGEX_MARKS else char
