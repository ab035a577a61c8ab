"""Which searches become training rows."""

import polars as pl

from drag_ray.format.config import FormatConfig


def is_usable() -> pl.Expr:
    """Searches that ran and whose reply was not cut: a search that failed says nothing about its query."""
    return ~pl.col("has_error") & ~pl.col("is_truncated")


def is_target(config: FormatConfig) -> pl.Expr:
    """Usable searches that are good enough to train towards."""
    return is_usable() & pl.col("found") & (pl.col("rank_score") >= config.min_rank_score)


def keep_first(frame: pl.DataFrame, limit: int) -> pl.DataFrame:
    """The first `limit` rows of each question, all when `limit` is 0."""
    return frame.filter(pl.int_range(pl.len()).over("question_id") < limit) if limit else frame


def select_best_queries(searches: pl.DataFrame, config: FormatConfig) -> pl.DataFrame:
    """The best distinct successful queries of each question over all of its samples and turns, best first.

    Of equal rank scores the earlier turn comes first: it needed less, and its reasoning speaks of the question alone.
    """
    ranked = searches.filter(is_target(config)).sort(
        "question_id", "rank_score", "step", "sample_index", descending=[False, True, False, False], maintain_order=True
    )
    return keep_first(
        ranked.unique(["question_id", "query_key"], keep="first", maintain_order=True), config.max_searches_per_question
    )
