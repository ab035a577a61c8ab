"""Rows that teach whole searches: a recorded conversation up to its best query, with the failed queries as context.

    {"messages": [{"role": "system", ...}, {"role": "user", ...}, {"role": "assistant", "content": "<search>rotor</search>"},
                  {"role": "user", ...}, {"role": "assistant", "content": "<search>rotor AND rpm</search>"}],
     "num_prompt_messages": 2, "train_turns": [false, true],
     "question_id": "q1", "trajectory_id": "q1-0", "score": 0.37, "weight": 0.37,
     "prompt_digests": ["9f86d081884c7d65...", "60303ae22b998861..."]}

`train_turns` has a value for each assistant message from `num_prompt_messages` on: true for the searches that found more than
the question and all searches before, and for the calls of tools that worked, on which they rest; false for the other searches and
for replies that asked for nothing.  In the task `answer` it is the answer that has to be right, and the searches before it are
such calls.  The conversation is as it was recorded.
"""

import polars as pl

from drag_ray.agent.tasks import ANSWERING
from drag_ray.format.columns import ConversationRow, conversation_to_example
from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import RowFormat
from drag_ray.format.selection import cut_conversation, is_improvement, is_usable, keep_first, row_weight
from drag_ray.format.tables import ScoredPart
from drag_ray.types import ActionKind


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """One row for each of the best trajectories of a question whose best queries differ.

    The best search of a trajectory is the one with the highest gain, the earliest of equals.
    """
    is_learned = is_improvement(config)
    is_step = (pl.col("action") == ActionKind.TOOL.value) | (
        pl.col("task").is_in(ANSWERING) & (pl.col("action") == ActionKind.SEARCH.value)
    )
    best = pl.struct("gain", "rank_score", "step", "query_key", "num_prompt_messages", "evidence_rank").filter(is_learned)
    outcomes = (
        part.turns.group_by("question_id", "trajectory_id", maintain_order=True)
        .agg(
            pl.col("sample_index").first(),
            best.get(pl.col("gain").filter(is_learned).arg_max(), null_on_oob=True).alias("best"),
            train_turns=is_learned | (is_usable() & is_step),
            prompt_digests=pl.col("prompt_digest"),
            steps=pl.col("step"),
        )
        .filter(pl.col("best").is_not_null())
        .unnest("best")
        .sort("question_id", "gain", "step", "sample_index", descending=[False, True, False, False])
        .unique(["question_id", "query_key"], keep="first", maintain_order=True)
    )
    return part.add_conversations(keep_first(outcomes, config.max_searches_per_question)).select(
        cut_conversation(pl.col("num_prompt_messages") + 1).alias("messages"),
        pl.col("num_opening_messages").alias("num_prompt_messages"),
        pl.col("train_turns").list.head("step"),
        *("question_id", "trajectory_id"),
        pl.col("gain").alias("score"),
        row_weight(config),
        pl.col("prompt_digests").list.head("step"),
    )


FORMAT = RowFormat(
    row=ConversationRow,
    summary="conversation up to its best query, failed turns masked (SFT: messages, train_turns)",
    build_rows=build_rows,
    to_example=conversation_to_example,
)
