"""Replies that go round in circles."""

import polars as pl

from drag_ray.agent.degeneration import find_repetitive
from drag_ray.process.quality import Filter


def find(turns: pl.DataFrame) -> pl.Expr:
    """True for a reply that repeats itself."""
    return pl.lit(find_repetitive(turns["reply"]))


FILTER = Filter(label="repeats itself", find=find)
