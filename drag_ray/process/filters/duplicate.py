"""Replies that are the same as another sample's in the same state."""

import polars as pl

from drag_ray.process.quality import Filter
from drag_ray.types import ActionKind

SAID = pl.when(pl.col("action") == ActionKind.SEARCH.value).then("query_key").otherwise("reply")
"""What counts of a reply when it is compared: of a search the query, whatever was thought before it."""


def find(turns: pl.DataFrame) -> pl.Expr:
    """True for a reply that says the same, but for spacing, as an earlier one."""
    return find_repeats(SAID)


def find_repeats(*same: pl.Expr) -> pl.Expr:
    """True for a reply in whose state an earlier one has the same values, of the replies that no earlier filter has found."""
    fine = pl.col("drop_reason") == ""
    keys = pl.struct("question_id", "state", "action", *(key.alias(f"same_{place}") for place, key in enumerate(same)), fine)
    return fine & ~keys.is_first_distinct()


FILTER = Filter(label="duplicate", find=find, drops_repeats=True)
