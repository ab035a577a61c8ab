"""Trajectories as tables: one row a search, and one row a trajectory with what its searches came to."""

import polars as pl

from drag_ray.agent.scores import rank_score
from drag_ray.process.scores import cumulative_effort
from drag_ray.types import ActionKind


def explode_searches(trajectories: pl.DataFrame) -> pl.DataFrame:
    """One row a search, in the order of trajectories and steps.

    Columns: question_id, question, trajectory_id, sample_index, preset, protocol, top_k, step (1-based turn), query,
    query_key (the query without differences of spacing), reasoning, num_prompt_messages, state (a fingerprint of those
    messages), num_hits, evidence_rank, rank_score, found (evidence within top_k), has_error (the search itself failed),
    is_truncated (the reply was cut at its token limit), is_repeated (the trajectory asked the same before).
    """
    turn = pl.col("turns").struct
    searches = (
        trajectories.lazy()
        .explode("turns", "states")
        .filter(turn.field("action") == ActionKind.SEARCH.value)
        .select(
            *("question_id", "question", "trajectory_id", "sample_index", "preset", "protocol", "top_k"),
            *(turn.field(name) for name in ("step", "query", "reasoning", "num_prompt_messages", "num_hits", "evidence_rank")),
            state=pl.col("states"),
            query_key=turn.field("query").str.replace_all(r"\s+", " ").str.strip_chars(),
            rank_score=rank_score(turn.field("evidence_rank"), pl.col("top_k")),
            has_error=turn.field("error") != "",
            is_truncated=turn.field("finish_reason") == "length",
        )
    )
    return searches.with_columns(
        found=(pl.col("rank_score") > 0) & ~pl.col("has_error"),
        is_repeated=~pl.struct("trajectory_id", "query_key").is_first_distinct(),
    ).collect()


def summarise_trajectories(trajectories: pl.DataFrame, searches: pl.DataFrame) -> pl.DataFrame:
    """One row a trajectory, with the outcome of its searches.

    Adds to the columns of `trajectories` (without turns): num_opening_messages (messages before the first reply),
    num_turns, num_invalid (replies without a readable action), num_searches (those that ran), valid (one of them
    found evidence within top_k), first_success_step, best_step, best_query, best_rank, best_rank_score (the highest
    rank score, the earliest of equals; null unless valid) and cumulative_effort.
    """
    ran = searches.lazy().filter(~pl.col("has_error"))
    ran = ran.with_columns(position=pl.int_range(pl.len()).over("trajectory_id"))
    num_searches = ran.group_by("trajectory_id").agg(num_searches=pl.len())
    successes = ran.filter("found")
    first = successes.group_by("trajectory_id", maintain_order=True).agg(
        first_success_step=pl.col("step").first(),
        first_position=pl.col("position").first(),
        first_rank=pl.col("evidence_rank").first(),
    )
    best = (
        successes.sort("rank_score", descending=True, maintain_order=True)
        .group_by("trajectory_id", maintain_order=True)
        .agg(pl.col("step", "query", "rank_score").first().name.prefix("best_"), best_rank=pl.col("evidence_rank").first())
    )
    turns = pl.col("turns")
    action = pl.element().struct.field("action")
    return (
        trajectories.lazy()
        .with_columns(
            num_opening_messages=turns.list.first().struct.field("num_prompt_messages"),
            num_turns=turns.list.len(),
            num_invalid=turns.list.eval(action == ActionKind.INVALID.value).list.sum(),
        )
        .drop("turns", "states")
        .join(num_searches, on="trajectory_id", how="left", maintain_order="left")
        .join(first, on="trajectory_id", how="left", maintain_order="left")
        .join(best, on="trajectory_id", how="left", maintain_order="left")
        .with_columns(
            pl.col("num_searches").fill_null(0),
            valid=pl.col("best_step").is_not_null(),
            cumulative_effort=cumulative_effort(
                pl.col("first_position"), pl.col("first_rank"), pl.col("num_searches"), pl.col("top_k")
            ),
        )
        .drop("first_position", "first_rank")
        .collect()
    )
