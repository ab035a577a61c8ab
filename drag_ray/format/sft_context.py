"""Rows that teach what to ask after a query failed: the conversation so far -> a query that finds evidence.

    {"prompt": [{"role": "system", ...}, {"role": "user", ...}, {"role": "assistant", "content": "<search>rotor</search>"},
                {"role": "user", "content": "<pages that do not help>"}],
     "completion": [{"role": "assistant", "content": "<search>rotor AND rpm</search>"}],
     "question_id": "q1", "trajectory_id": "q1-0", "score": 0.67}

The completion is the query that the policy asked at that turn if it succeeded, otherwise the best query of the
question from any sample, without reasoning, as that was about another conversation.
"""

from typing import Any

import polars as pl
import pyarrow as pa

from drag_ray.format.config import FormatConfig
from drag_ray.format.messages import MESSAGES, cut_conversation, write_reply
from drag_ray.format.selection import is_target, is_usable, keep_first, select_best_queries

SCHEMA = pa.schema(
    [
        ("prompt", MESSAGES),
        ("completion", MESSAGES),
        ("question_id", pa.string()),
        ("trajectory_id", pa.string()),
        ("score", pa.float64()),
    ]
)


def build_rows(searches: pl.DataFrame, trajectories: pl.DataFrame, config: FormatConfig) -> list[dict[str, Any]]:
    """One row for each distinct state after failed searches alone, the policy's own recoveries first."""
    best = select_best_queries(searches, config).unique("question_id", keep="first", maintain_order=True)
    states = _select_states(searches).with_columns(recovered=is_target(config))
    own = pl.col("recovered")
    rows = (
        states.join(
            best.select("question_id", best_query="query", best_score="rank_score"), on="question_id", maintain_order="left"
        )
        .with_columns(
            query=pl.when(own).then("query").otherwise("best_query"),
            score=pl.when(own).then("rank_score").otherwise("best_score"),
            reasoning=pl.when(own & config.include_reasoning).then("reasoning").otherwise(pl.lit("")),
        )
        .sort("question_id", "recovered", "score", "step", "sample_index", descending=[False, True, True, False, False])
        .unique(["question_id", "state", "query"], keep="first", maintain_order=True)
    )
    kept = keep_first(rows, config.max_searches_per_question).join(
        trajectories.select("trajectory_id", "messages"), on="trajectory_id", maintain_order="left"
    )
    return [_build_row(row) for row in kept.iter_rows(named=True)]


def _select_states(searches: pl.DataFrame) -> pl.DataFrame:
    """Usable searches before which the trajectory has searched, and never found evidence."""
    ran_before = (~pl.col("has_error")).cum_sum().shift(1, fill_value=0).over("trajectory_id")
    found_before = pl.col("found").cum_sum().shift(1, fill_value=0).over("trajectory_id")
    return searches.filter(is_usable() & (ran_before > 0) & (found_before == 0))


def _build_row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "prompt": cut_conversation(row["messages"], row["num_prompt_messages"]),
        "completion": write_reply(row["protocol"], row["query"], row["reasoning"]),
        "question_id": row["question_id"],
        "trajectory_id": row["trajectory_id"],
        "score": row["score"],
    }
