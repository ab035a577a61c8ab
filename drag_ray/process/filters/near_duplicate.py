"""Replies that are nearly the same as another sample's in the same state, and had the same result."""

import polars as pl

from drag_ray.agent.degeneration import join_words
from drag_ray.process.filters.duplicate import SAID, find_repeats
from drag_ray.process.quality import Filter


def find(turns: pl.DataFrame) -> pl.Expr:
    """True for a reply that says the same as an earlier one but for order, case and punctuation, and found as much."""
    return find_repeats(join_words(SAID), pl.col("evidence_rank"))


FILTER = Filter(label="near duplicate", find=find, drops_repeats=True)
