"""Rows for a reward model: a first query and what it gains over the question, which may be less than nothing.

{"prompt": [{"role": "system", ...}, {"role": "user", "content": "Question: ..."}],
 "completion": [{"role": "assistant", "content": "<search>rotor</search>"}],
 "question_id": "q1", "trajectory_id": "q1-0", "baseline": "", "query": "rotor", "score": -0.5,
 "prompt_digest": "9f86d081884c7d65..."}

The question itself (in the mode `expand`: nothing added) is among the queries, with a gain of 0. `baseline` says which one wrote
the query, `question` for that; it is empty for the policy's own.
"""

import polars as pl

from drag_ray.engine.generate import Message
from drag_ray.format.columns import Row, ScoredExample
from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import RowFormat
from drag_ray.format.selection import cut_conversation, is_usable, render_searches
from drag_ray.format.tables import ScoredPart


class ScoredRow(Row):
    """A query and its gain over the question."""

    prompt: list[Message]
    completion: list[Message]
    question_id: str
    trajectory_id: str
    baseline: str
    query: str
    score: float
    prompt_digest: str
    """of the prompt as the engine had it, with its images (`engine.prompt_digest`); empty where that is not known"""


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """One row for each distinct query that was the first of a trajectory, and one for the question."""
    first = (
        part.candidates.filter(is_usable() & (pl.col("step") == 1))
        .sort("question_id", "sample_index", maintain_order=True)
        .unique(["question_id", "state", "query_key"], keep="first", maintain_order=True)
    )
    return render_searches(part.add_conversations(first), "completion", config.include_reasoning).select(
        cut_conversation("num_prompt_messages").alias("prompt"),
        *("completion", "question_id", "trajectory_id", "baseline", "query"),
        pl.col("gain").alias("score"),
        "prompt_digest",
    )


def to_example(row: ScoredRow) -> ScoredExample:
    """The query with its gain."""
    return ScoredExample(row["prompt"], row["completion"][0], row["score"])


FORMAT = RowFormat(
    row=ScoredRow,
    summary="first query and its gain over the question (reward model: prompt, completion, score)",
    build_rows=build_rows,
    to_example=to_example,
    learns_from_proposed=True,
)
