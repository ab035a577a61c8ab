"""Preference pairs: two queries that the policy asked from the very same state, one of which did better.

    {"prompt": [{"role": "system", ...}, {"role": "user", "content": "Question: ..."}],
     "chosen": [{"role": "assistant", "content": "<search>rotor AND rpm</search>"}],
     "rejected": [{"role": "assistant", "content": "<search>rotor</search>"}],
     "question_id": "q1", "trajectory_id": "q1-0", "chosen_score": 0.67, "rejected_score": 0.0}

The state is the whole prompt; the samples of a question share that of the first turn.  The chosen query found
evidence, and its rank score is greater by `min_margin` at least.  Each chosen query takes its hardest negative (the one
with the highest rank score, of equals the one with evidence nearer below the top_k) before any takes a second one.
"""

from typing import Any

import polars as pl
import pyarrow as pa

from drag_ray.format.config import FormatConfig
from drag_ray.format.messages import MESSAGES, cut_conversation, write_reply
from drag_ray.format.selection import is_target, is_usable, keep_first

SCHEMA = pa.schema(
    [
        ("prompt", MESSAGES),
        ("chosen", MESSAGES),
        ("rejected", MESSAGES),
        ("question_id", pa.string()),
        ("trajectory_id", pa.string()),
        ("chosen_score", pa.float64()),
        ("rejected_score", pa.float64()),
    ]
)

# Scores are fractions of top_k: 2/3 - 1/3 must pass a margin of 1/3 in spite of rounding.
_TOLERANCE = 1e-9


def build_rows(searches: pl.DataFrame, trajectories: pl.DataFrame, config: FormatConfig) -> list[dict[str, Any]]:
    """Preference pairs, at most `max_pairs_per_question` of a question."""
    candidates = (
        searches.filter(is_usable())
        .sort(
            *("question_id", "rank_score", "evidence_rank", "sample_index"),
            descending=[False, True, False, False],
            nulls_last=True,
            maintain_order=True,
        )
        .unique(["question_id", "state", "query_key"], keep="first", maintain_order=True)
        .with_row_index("place")
    )
    rejected = candidates.select(
        *("question_id", "state"),
        *(pl.col(name).name.prefix("rejected_") for name in ("query", "reasoning", "rank_score", "place")),
    )
    pairs = (
        candidates.filter(is_target(config))
        .join(rejected, on=["question_id", "state"])
        .filter(pl.col("rank_score") - pl.col("rejected_rank_score") >= config.min_margin - _TOLERANCE)
        .sort("place", "rejected_place")
        .with_columns(hardness=pl.int_range(pl.len()).over("place"))
        .sort("question_id", "hardness", "place")
    )
    kept = keep_first(pairs, config.max_pairs_per_question).join(
        trajectories.select("trajectory_id", "messages"), on="trajectory_id", maintain_order="left"
    )
    return [_build_row(pair, config.include_reasoning) for pair in kept.iter_rows(named=True)]


def _build_row(pair: dict[str, Any], include_reasoning: bool) -> dict[str, Any]:
    chosen_reasoning, rejected_reasoning = (pair["reasoning"], pair["rejected_reasoning"]) if include_reasoning else ("", "")
    return {
        "prompt": cut_conversation(pair["messages"], pair["num_prompt_messages"]),
        "chosen": write_reply(pair["protocol"], pair["query"], chosen_reasoning),
        "rejected": write_reply(pair["protocol"], pair["rejected_query"], rejected_reasoning),
        "question_id": pair["question_id"],
        "trajectory_id": pair["trajectory_id"],
        "chosen_score": pair["rank_score"],
        "rejected_score": pair["rejected_rank_score"],
    }
