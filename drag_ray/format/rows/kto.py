"""Rows that say of single queries whether they are wanted: what was asked in a state, and whether that beats the question.

{"prompt": [{"role": "system", ...}, {"role": "user", "content": "Question: ..."}],
 "completion": [{"role": "assistant", "content": "<search>rotor</search>"}], "label": false,
 "question_id": "q1", "trajectory_id": "q1-0", "score": -0.5,
 "prompt_digest": "9f86d081884c7d65..."}

Unlike preference pairs they need no second query from the same state.  A query that finds as much as the question is neither
wanted nor unwanted; where it is not known what the question finds, one that finds nothing is unwanted.  The question itself (in
the mode `expand`: nothing added) is unwanted in a state where another query wins, and wanted where others lose and none wins.
"""

import polars as pl

from drag_ray.baselines.question import RawQuestion
from drag_ray.engine.generate import Message
from drag_ray.format.columns import Row
from drag_ray.format.config import FormatConfig
from drag_ray.format.examples import LabelledExample
from drag_ray.format.messages import cut_conversation, render_searches
from drag_ray.format.row_format import RowFormat
from drag_ray.format.selection import is_target, is_usable, keep_first
from drag_ray.format.tables import ScoredPart


class LabelledRow(Row):
    """A reply that is wanted or not."""

    prompt: list[Message]
    completion: list[Message]
    label: bool
    question_id: str
    trajectory_id: str
    score: float
    prompt_digest: str
    """of the prompt as the engine had it, with its images (`engine.prompt_digest`); empty where that is not known"""


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """The best wanted and the first unwanted distinct queries of a question, at most `max_searches_per_question` of each."""
    reasoning = pl.col("reasoning") if config.include_reasoning else pl.lit("").alias("reasoning")
    is_question = pl.col("baseline") == RawQuestion.name
    loses = (pl.col("gain") < 0) | ~(pl.col("knows_question") | (pl.col("utility") > 0))
    labelled = (
        part.candidates.filter(is_usable())
        .with_columns(reasoning, wins=is_target(config), loses=loses)
        .with_columns(pl.col("wins", "loses").any().over("question_id", "state").name.prefix("some_"))
        .with_columns(label=pl.when(is_question).then(~pl.col("some_wins")).otherwise("wins"))
        .filter(pl.when(is_question).then(pl.col("some_wins") | pl.col("some_loses")).otherwise(pl.col("wins") | pl.col("loses")))
        .sort("question_id", "gain", "step", "sample_index", descending=[False, True, False, False], maintain_order=True)
        .unique(["question_id", "state", "query_key"], keep="first", maintain_order=True)
    )
    kept = part.add_conversations(keep_first(labelled, config.max_searches_per_question, "label"))
    return render_searches(kept, "query", "reasoning", into="completion").select(
        cut_conversation("num_prompt_messages").alias("prompt"),
        *("completion", "label", "question_id", "trajectory_id"),
        pl.col("gain").alias("score"),
        "prompt_digest",
    )


def to_example(row: LabelledRow) -> LabelledExample:
    """The query with its label."""
    return LabelledExample(row["prompt"], row["completion"][0], row["label"])


FORMAT = RowFormat(
    row=LabelledRow,
    summary="query, wanted or not (KTO: prompt, completion, label)",
    build_rows=build_rows,
    to_example=to_example,
    learns_from_proposed=True,
)
