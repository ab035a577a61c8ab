"""Rows for a reward model: a first query and its rank score, whether it found evidence or not.

{"prompt": [{"role": "system", ...}, {"role": "user", "content": "Question: ..."}],
 "completion": [{"role": "assistant", "content": "<search>rotor</search>"}],
 "question_id": "q1", "trajectory_id": "q1-0", "query": "rotor", "score": 0.0}
"""

from typing import Any

import polars as pl
import pyarrow as pa

from drag_ray.format.config import FormatConfig
from drag_ray.format.messages import MESSAGES, cut_conversation, write_reply
from drag_ray.format.selection import is_usable

SCHEMA = pa.schema(
    [
        ("prompt", MESSAGES),
        ("completion", MESSAGES),
        ("question_id", pa.string()),
        ("trajectory_id", pa.string()),
        ("query", pa.string()),
        ("score", pa.float64()),
    ]
)


def build_rows(searches: pl.DataFrame, trajectories: pl.DataFrame, config: FormatConfig) -> list[dict[str, Any]]:
    """One row for each distinct query that was the first of a trajectory."""
    first = (
        searches.filter(is_usable() & (pl.col("step") == 1))
        .sort("question_id", "sample_index", maintain_order=True)
        .unique(["question_id", "state", "query_key"], keep="first", maintain_order=True)
        .join(trajectories.select("trajectory_id", "messages"), on="trajectory_id", maintain_order="left")
    )
    return [_build_row(search, config.include_reasoning) for search in first.iter_rows(named=True)]


def _build_row(search: dict[str, Any], include_reasoning: bool) -> dict[str, Any]:
    return {
        "prompt": cut_conversation(search["messages"], search["num_prompt_messages"]),
        "completion": write_reply(search["protocol"], search["query"], search["reasoning"] if include_reasoning else ""),
        "question_id": search["question_id"],
        "trajectory_id": search["trajectory_id"],
        "query": search["query"],
        "score": search["rank_score"],
    }
