"""Preference pairs: two queries that the policy asked from the very same state, one of which did better.

    {"prompt": [{"role": "system", ...}, {"role": "user", "content": "Question: ..."}],
     "chosen": [{"role": "assistant", "content": "<search>rotor AND rpm</search>"}],
     "rejected": [{"role": "assistant", "content": "<search>rotor</search>"}],
     "question_id": "q1", "trajectory_id": "q1-0", "chosen_score": 0.67, "rejected_score": 0.0}

The state is the whole prompt; the samples of a question share that of the first turn.  The chosen query found
evidence, and its rank score is greater by `min_margin` at least.  Each chosen query takes its hardest negative (the one
with the highest rank score, of equals the one with evidence nearer below the top_k) before any takes a second one.
"""

import polars as pl

from drag_ray.engine.generate import Message
from drag_ray.format.columns import Row
from drag_ray.format.config import FormatConfig
from drag_ray.format.examples import PreferenceExample
from drag_ray.format.messages import cut_conversation, render_searches
from drag_ray.format.row_format import RowFormat
from drag_ray.format.selection import is_target, is_usable, keep_first
from drag_ray.format.tables import ScoredPart

# Scores are fractions of top_k: 2/3 - 1/3 must pass a margin of 1/3 in spite of rounding.
_TOLERANCE = 1e-9
_ANY_NUMBER = 2**31


class PreferenceRow(Row):
    """Two replies to one prompt, the better one first."""

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]
    question_id: str
    trajectory_id: str
    chosen_score: float
    rejected_score: float


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """Preference pairs, at most `max_pairs_per_question` of a question."""
    reasoning = pl.col("reasoning") if config.include_reasoning else pl.lit("").alias("reasoning")
    candidates = (
        part.searches.filter(is_usable())
        .with_columns(reasoning)
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
        .filter(pl.col("hardness") < (config.max_negatives or _ANY_NUMBER))
        .sort("question_id", "hardness", "place")
    )
    kept = part.add_conversations(keep_first(pairs, config.max_pairs_per_question))
    chosen = render_searches(kept, "query", "reasoning", into="chosen")
    return render_searches(chosen, "rejected_query", "rejected_reasoning", into="rejected").select(
        cut_conversation("num_prompt_messages").alias("prompt"),
        *("chosen", "rejected", "question_id", "trajectory_id"),
        pl.col("rank_score").alias("chosen_score"),
        pl.col("rejected_rank_score").alias("rejected_score"),
    )


def to_example(row: PreferenceRow) -> PreferenceExample:
    """The pair."""
    return PreferenceExample(row["prompt"], row["chosen"][0], row["rejected"][0])


FORMAT = RowFormat(
    row=PreferenceRow,
    summary="two queries from one state, the better one first (DPO: prompt, chosen, rejected)",
    build_rows=build_rows,
    to_example=to_example,
)
