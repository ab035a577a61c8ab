"""Queries that name a document file: file names are not searchable text."""

import polars as pl

from drag_ray.agent.degeneration import copies_file_name
from drag_ray.process.quality import Filter


def find(turns: pl.DataFrame) -> pl.Expr:
    """True for a query with the name of a file."""
    return copies_file_name(pl.col("query"), pl.col("evidence_files"))


FILTER = Filter(label="names a file", find=find)
