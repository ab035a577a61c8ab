"""Rows that teach the first query of a question: the opening of the conversation -> a query that beats it.

    {"prompt": [{"role": "system", "content": "You search ..."}, {"role": "user", "content": "Question: ..."}],
     "completion": [{"role": "assistant", "content": "<search>rotor AND rpm</search>"}],
     "question_id": "q1", "trajectory_id": "q1-0", "score": 0.37, "weight": 0.37, "prompt_digest": "9f86d081884c7d65..."}

A query that was found at a later turn is taught as a first one, without the reasoning that led to it there.  So is one that
was found with a hint: its reasoning could speak of what serving does not show.
"""

import polars as pl

from drag_ray.format.columns import ReplyRow, reply_to_example
from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import RowFormat
from drag_ray.format.selection import render_searches, select_best_queries, select_replies
from drag_ray.format.tables import ScoredPart


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """One row for each of a question's best distinct queries that beat it."""
    fits = (pl.col("step") == 1) & ~pl.col("hinted") & config.include_reasoning
    openings = part.turns.filter(pl.col("step") == 1).select("trajectory_id", "prompt_digest")
    best = (
        part.add_conversations(select_best_queries(part.searches, config))
        .drop("prompt_digest")
        .join(openings, on="trajectory_id", how="left", maintain_order="left")
    )
    return select_replies(render_searches(best, "completion", fits), "num_opening_messages", config)


FORMAT = RowFormat(
    row=ReplyRow,
    summary="question -> first query that beats it (SFT: prompt, completion)",
    build_rows=build_rows,
    to_example=reply_to_example,
    learns_from_proposed=True,
    learns_from_hinted=True,
)
