"""Rejection sampling: the best whole conversations of each question, as they were sampled, for another round of training.

    {"messages": [{"role": "system", ...}, {"role": "user", ...}, {"role": "assistant", "content": "<search>rotor rpm</search>"},
                  {"role": "user", ...}, {"role": "assistant", "content": "<answer>340 rpm</answer>"}],
     "num_prompt_messages": 2, "train_turns": [true, true],
     "question_id": "q1", "trajectory_id": "q1-0", "score": 0.37, "weight": 0.5,
     "prompt_digests": ["9f86d081884c7d65...", "60303ae22b998861..."]}

Kept are the conversations that teach a search which beats the question, those with the highest reward first, as many as differ in
their queries.  Every reply is learned except those that the process stage dropped for what they are; one that it dropped because
another sample says the same is no worse than that one.  The rows of a question weigh 1 together, so that questions that are easy
to solve do not outweigh the others.
"""

import polars as pl

from drag_ray.format.columns import ConversationRow, conversation_to_example
from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import RowFormat
from drag_ray.format.selection import cut_conversation, keep_first
from drag_ray.format.tables import ScoredPart
from drag_ray.process.quality import FILTERS
from drag_ray.types import ActionKind


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """One row for each of a question's best trajectories that beat it and whose queries differ."""
    is_learned = pl.col("drop_reason").is_in(["", *(name for name, found in FILTERS.items() if found.drops_repeats)])
    replies = part.turns.group_by("trajectory_id", maintain_order=True).agg(
        queries=pl.col("query_key").filter("is_scored"),
        train_turns=is_learned & (pl.col("action") != ActionKind.INVALID.value),
        score=pl.col("gain").filter(pl.col("is_scored") & is_learned).max(),
        last_prompt=pl.col("num_prompt_messages").last(),
        prompt_digests=pl.col("prompt_digest"),
    )
    successes = (
        part.trajectories.join(replies, on="trajectory_id", maintain_order="left")
        .filter(pl.col("score") > config.min_gain)
        .sort("question_id", "reward", "sample_index", descending=[False, True, False], maintain_order=True)
        .unique(["question_id", "queries"], keep="first", maintain_order=True)
    )
    return keep_first(successes, config.max_searches_per_question).select(
        cut_conversation(pl.col("last_prompt") + 1).alias("messages"),
        pl.col("num_opening_messages").alias("num_prompt_messages"),
        *("train_turns", "question_id", "trajectory_id", "score"),
        (1 / pl.len().over("question_id")).alias("weight"),
        "prompt_digests",
    )


FORMAT = RowFormat(
    row=ConversationRow,
    summary="best distinct whole conversations of a question (SFT: messages, train_turns)",
    build_rows=build_rows,
    to_example=conversation_to_example,
)
