"""Rows that teach whole searches: a recorded conversation up to its best query, with the failed queries as context.

    {"messages": [{"role": "system", ...}, {"role": "user", ...}, {"role": "assistant", "content": "<search>rotor</search>"},
                  {"role": "user", ...}, {"role": "assistant", "content": "<search>rotor AND rpm</search>"}],
     "num_prompt_messages": 2, "train_turns": [false, true],
     "question_id": "q1", "trajectory_id": "q1-0", "score": 0.67}

`train_turns` has a value for each assistant message from `num_prompt_messages` on: true for the searches that found
evidence, false for those that did not and for replies that asked for nothing.  The conversation is as it was recorded.
"""

from typing import Any

import polars as pl
import pyarrow as pa

from drag_ray.format.config import FormatConfig
from drag_ray.format.messages import MESSAGES, cut_conversation
from drag_ray.format.selection import is_target, keep_first

SCHEMA = pa.schema(
    [
        ("messages", MESSAGES),
        ("num_prompt_messages", pa.int32()),
        ("train_turns", pa.list_(pa.bool_())),
        ("question_id", pa.string()),
        ("trajectory_id", pa.string()),
        ("score", pa.float64()),
    ]
)


def build_rows(searches: pl.DataFrame, trajectories: pl.DataFrame, config: FormatConfig) -> list[dict[str, Any]]:
    """One row for each of the best trajectories of a question whose best queries differ.

    The best search of a trajectory is the one with the highest rank score, the earliest of equals.
    """
    best_first = pl.col("rank_score") == pl.col("rank_score").max()
    outcomes = (
        searches.filter(is_target(config))
        .group_by("question_id", "trajectory_id", maintain_order=True)
        .agg(
            pl.col("sample_index").first(),
            pl.col("query_key", "step", "rank_score", "num_prompt_messages").filter(best_first).first(),
            trained_positions=pl.col("num_prompt_messages"),
        )
        .sort("question_id", "rank_score", "step", "sample_index", descending=[False, True, False, False])
        .unique(["question_id", "query_key"], keep="first", maintain_order=True)
    )
    kept = keep_first(outcomes, config.max_searches_per_question).join(
        trajectories.select("trajectory_id", "messages", "num_opening_messages"), on="trajectory_id", maintain_order="left"
    )
    return [_build_row(outcome) for outcome in kept.iter_rows(named=True)]


def _build_row(outcome: dict[str, Any]) -> dict[str, Any]:
    messages = cut_conversation(outcome["messages"], outcome["num_prompt_messages"] + 1)
    start = outcome["num_opening_messages"]
    return {
        "messages": messages,
        "num_prompt_messages": start,
        "train_turns": [
            position in outcome["trained_positions"]
            for position, message in enumerate(messages)
            if position >= start and message["role"] == "assistant"
        ],
        "question_id": outcome["question_id"],
        "trajectory_id": outcome["trajectory_id"],
        "score": outcome["rank_score"],
    }
