"""How much searching a trajectory took, as a Polars expression."""

import polars as pl


def cumulative_effort(first_success: pl.Expr, rank: pl.Expr, num_searches: pl.Expr, top_k: pl.Expr) -> pl.Expr:
    """The cumulative effort score of the agentic retrieval fine-tuning (DRAG) reference: how few pages came before the evidence.

    1 when the very first page was evidence, near 0 when it was the last of all pages, 0 when there was none.
    With position = top_k * first_success + rank, it is 1 - (position - 1) / (num_searches * top_k), within [0, 1].

    Args:
        first_success: 0-based position among the trajectory's searches of the first one that succeeded, or null.
        rank: 1-based rank of the evidence page in that search, or null.
        num_searches: searches of the trajectory.
        top_k: pages shown for a search.
    """
    position = top_k * first_success + rank
    return (1 - (position - 1) / (num_searches * top_k)).clip(0.0, 1.0).fill_null(0.0)
