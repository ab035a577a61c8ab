"""Rows that teach the first query of a question: the opening of the conversation -> a query that finds evidence.

    {"prompt": [{"role": "system", "content": "You search ..."}, {"role": "user", "content": "Question: ..."}],
     "completion": [{"role": "assistant", "content": "<search>rotor AND rpm</search>"}],
     "question_id": "q1", "trajectory_id": "q1-0", "score": 0.67}

A query that was found at a later turn is taught as a first one, without the reasoning that led to it there.
"""

from typing import Any

import polars as pl
import pyarrow as pa

from drag_ray.format.config import FormatConfig
from drag_ray.format.messages import MESSAGES, cut_conversation, write_reply
from drag_ray.format.selection import select_best_queries

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
    """One row for each of the best distinct successful queries of a question."""
    best = select_best_queries(searches, config).join(
        trajectories.select("trajectory_id", "messages", "num_opening_messages"),
        on="trajectory_id",
        maintain_order="left",
    )
    return [_build_row(search, config.include_reasoning) for search in best.iter_rows(named=True)]


def _build_row(search: dict[str, Any], include_reasoning: bool) -> dict[str, Any]:
    reasoning = search["reasoning"] if include_reasoning and search["step"] == 1 else ""
    return {
        "prompt": cut_conversation(search["messages"], search["num_opening_messages"]),
        "completion": write_reply(search["protocol"], search["query"], reasoning),
        "question_id": search["question_id"],
        "trajectory_id": search["trajectory_id"],
        "score": search["rank_score"],
    }
