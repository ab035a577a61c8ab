"""Replies that were cut at their token limit."""

import polars as pl

from drag_ray.process.quality import Filter


def find(turns: pl.DataFrame) -> pl.Expr:
    """True for a reply that was cut."""
    return pl.col("is_truncated")


FILTER = Filter(label="cut at the token limit", find=find)
