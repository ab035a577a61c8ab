"""Preference pairs: two replies that the policy gave to the very same state, one of which did better.

    {"prompt": [{"role": "system", ...}, {"role": "user", "content": "Question: ..."}],
     "chosen": [{"role": "assistant", "content": "<search>rotor AND rpm</search>"}],
     "rejected": [{"role": "assistant", "content": "<search>rotor</search>"}],
     "question_id": "q1", "trajectory_id": "q1-0", "chosen_score": 0.37, "rejected_score": 0.0,
     "prompt_digest": "9f86d081884c7d65..."}

The state is the whole prompt; the samples of a question share that of the first turn, and there the question itself (in the mode
`expand`: nothing added) is a query, too.  The scores are gains over it.  The chosen query is no worse than the question, and
gains more than the other by `min_margin` at least.  Each chosen query takes its hardest negative (the one with the highest gain)
before any takes a second one.

In the task `answer` the replies are answers, worth their ANLS*, and the chosen one is right.
"""

import polars as pl

from drag_ray.agent.tasks import ANSWERING
from drag_ray.engine.generate import Message, split_reasoning
from drag_ray.format.columns import PreferenceExample, Row
from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import RowFormat
from drag_ray.format.selection import as_reply, cut_conversation, is_usable, keep_first, render_searches
from drag_ray.format.tables import ScoredPart

# A difference of gains must pass a margin of the same size in spite of rounding.
_TOLERANCE = 1e-9


class PreferenceRow(Row):
    """Two replies to one prompt, the better one first."""

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]
    question_id: str
    trajectory_id: str
    chosen_score: float
    rejected_score: float
    prompt_digest: str
    """of the prompt as the engine had it, with its images (`engine.prompt_digest`); empty where that is not known"""


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """Preference pairs, at most `max_pairs_per_question` of a question."""
    candidates = (
        pl.concat([_list_searches(part, config), _list_answers(part, config)], how="diagonal_relaxed")
        .sort(*("question_id", "gain", "sample_index"), descending=[False, True, False], maintain_order=True)
        .unique(["question_id", "state", "query_key"], keep="first", maintain_order=True)
        .with_row_index("place")
    )
    rejected = candidates.select(
        *("question_id", "state"), *(pl.col(name).name.prefix("rejected_") for name in ("said", "gain", "place"))
    )
    is_right = ~pl.col("task").is_in(ANSWERING) | pl.col("found")
    pairs = (
        candidates.filter(pl.col("gain") >= 0, is_right)
        .join(rejected, on=["question_id", "state"])
        .filter(pl.col("gain") - pl.col("rejected_gain") >= config.min_margin - _TOLERANCE)
        .sort("place", "rejected_place")
        .with_columns(hardness=pl.int_range(pl.len()).over("place"))
        .sort("question_id", "hardness", "place")
    )
    kept = part.add_conversations(keep_first(pairs, config.max_pairs_per_question))
    return kept.select(
        cut_conversation("num_prompt_messages").alias("prompt"),
        pl.col("said").alias("chosen"),
        pl.col("rejected_said").alias("rejected"),
        *("question_id", "trajectory_id"),
        pl.col("gain").alias("chosen_score"),
        pl.col("rejected_gain").alias("rejected_score"),
        "prompt_digest",
    )


def _list_searches(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """The searches and orders, with the column `said`: the reply that asks for them."""
    searches = part.candidates.filter(is_usable(), ~pl.col("task").is_in(ANSWERING))
    return render_searches(searches, "said", config.include_reasoning)


def _list_answers(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """The answers of the task `answer`, with the column `said`: the reply, without its reasoning where that is not learned."""
    answers = part.turns.filter(is_usable(), pl.col("task").is_in(ANSWERING), pl.col("is_scored"))
    said = [text if config.include_reasoning else (split_reasoning(text)[1] or "").strip() for text in answers["reply"]]
    return answers.with_columns(pl.Series("said", said, dtype=pl.String)).with_columns(said=as_reply("said"))


def to_example(row: PreferenceRow) -> PreferenceExample:
    """The pair."""
    return PreferenceExample(row["prompt"], row["chosen"][0], row["rejected"][0])


FORMAT = RowFormat(
    row=PreferenceRow,
    summary="two queries or answers from one state, the better one first (DPO: prompt, chosen, rejected)",
    build_rows=build_rows,
    to_example=to_example,
    learns_from_proposed=True,
)
