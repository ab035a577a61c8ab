"""Searches in the last reply of a conversation, where the prompt asked for the answer and nothing could be done with them."""

import polars as pl

from drag_ray.process.quality import Filter


def find(turns: pl.DataFrame) -> pl.Expr:
    """True for a search where the answer was asked for."""
    return pl.col("is_late")


FILTER = Filter(label="a search in place of the answer", find=find)
