"""The terms of an index: what the patterns of a query stand for. Polars matches them, in time that is linear in their letters."""

from collections.abc import Sequence

import polars as pl

from drag_ray.search.budget import EXPANDED_S, POSTING_S, SCAN_S, Budget
from drag_ray.search.syntax import Pattern

MAX_TERMS = 1_000_000
"""The commonest terms of an index, so many, are what patterns can stand for. Reading them takes 2 s when an index is opened."""
MAX_FORM_CHARS = 64
"""A longer pattern stands for its `literal` alone: each letter of a term may be compared with each of a pattern."""
_REGEX_MARKS = frozenset("\\.+*?()|[]{}^$#&-~")


class Vocabulary:
    """The terms of an index, the commonest first.

    Args:
        counted: each with the number of pages that hold it, in this order; at most `MAX_TERMS`.
    """

    def __init__(self, counted: Sequence[tuple[str, int]]) -> None:
        self._terms = pl.Series([term for term, _ in counted], dtype=pl.String)
        self._doc_freqs = pl.Series([doc_freq for _, doc_freq in counted], dtype=pl.Int64)

    def expand(self, node: Pattern, budget: Budget) -> list[str] | None:
        """The terms that a pattern stands for; None if the budget does not allow to find or to read them all."""
        if not budget.spend(len(self._terms) * SCAN_S):
            return None
        budget.is_exceeded |= len(self._terms) == MAX_TERMS
        matched = match_pattern(node, self._terms)
        cost_s = int(matched.sum()) * EXPANDED_S + int(self._doc_freqs.filter(matched).sum()) * POSTING_S
        return self._terms.filter(matched).to_list() if budget.spend(cost_s) else None


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
