"""What the rank of an evidence page is worth, for one search and for a column of them."""

from typing import TypeVar

import polars as pl

_Number = TypeVar("_Number", float, pl.Expr)


def compute_rank_score(rank: int | None, top_k: int) -> float:
    """The rank score of the agentic retrieval fine-tuning (DRAG) reference: 1 for the first page, 1 / top_k for the last.

    It is (top_k - rank + 1) / top_k for a 1-based rank within top_k, and 0 for one outside of it and for None.
    """
    return 0.0 if rank is None or rank > top_k else _credit(rank, top_k)


def rank_score(rank: pl.Expr, top_k: pl.Expr) -> pl.Expr:
    """`compute_rank_score` of columns; a null rank scores 0."""
    return pl.when(rank <= top_k).then(_credit(rank, top_k)).otherwise(0.0)


def _credit(rank: _Number, top_k: _Number) -> _Number:
    return (top_k - rank + 1) / top_k
