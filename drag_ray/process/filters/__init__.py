"""Filters that keep replies out of training, one module for each reason.

`process.quality.load_filter` gives the filter of a name.
"""

from typing import TYPE_CHECKING, Literal

FILTERS = (
    "truncated",
    "last_reply",
    "repetitive",
    "file_name",
    "told_answer",
    "duplicate",
    "near_duplicate",
)
"""The filters in the order in which they are applied: the first one that finds a reply gives the reason."""

if TYPE_CHECKING:
    FilterName = str
else:
    FilterName = Literal[FILTERS]
