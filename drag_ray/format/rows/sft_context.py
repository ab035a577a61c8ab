"""Rows that teach what to ask after queries that failed: the conversation so far -> a query that beats the question.

    {"prompt": [{"role": "system", ...}, {"role": "user", ...}, {"role": "assistant", "content": "<search>rotor</search>"},
                {"role": "user", "content": "<pages that do not help>"}],
     "completion": [{"role": "assistant", "content": "<search>rotor AND rpm</search>"}],
     "question_id": "q1", "trajectory_id": "q1-0", "score": 0.37, "weight": 0.37, "prompt_digest": "9f86d081884c7d65..."}

The completion is the query that the policy asked at that turn if it found more than the question and all queries before,
otherwise the best query of the question from any sample, without reasoning, as that was about another conversation.  It may be a
baseline's or have been found with a hint; the conversations are the policy's own.
"""

import polars as pl

from drag_ray.format.columns import ReplyRow, reply_to_example
from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import RowFormat
from drag_ray.format.selection import is_improvement, is_usable, keep_first, render_searches, select_best_queries, select_replies
from drag_ray.format.tables import ScoredPart

_FROM_BEST = ("query", "gain", "rank_score", "evidence_rank")


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """One row for each distinct state after failed searches alone, the policy's own recoveries first."""
    helpful = select_best_queries(part.searches, config).filter((pl.col("gain") > 0) | pl.col("found"))
    best = helpful.unique("question_id", keep="first", maintain_order=True)
    own = pl.col("recovered")
    rows = (
        _select_states(part.own.searches)
        .with_columns(recovered=is_improvement(config))
        .join(best.select("question_id", pl.col(_FROM_BEST).name.prefix("best_")), on="question_id", maintain_order="left")
        .with_columns(*(pl.when(own).then(name).otherwise(f"best_{name}").alias(name) for name in _FROM_BEST))
        .sort("question_id", "recovered", "gain", "step", "sample_index", descending=[False, True, True, False, False])
        .unique(["question_id", "state", "query"], keep="first", maintain_order=True)
    )
    kept = part.add_conversations(keep_first(rows, config.max_searches_per_question))
    return select_replies(render_searches(kept, "completion", own & config.include_reasoning), "num_prompt_messages", config)


def _select_states(searches: pl.DataFrame) -> pl.DataFrame:
    """Usable searches before which the trajectory has searched, and never found evidence."""
    return searches.filter(is_usable() & (_count_before(~pl.col("has_error")) > 0) & (_count_before(pl.col("found")) == 0))


def _count_before(flag: pl.Expr) -> pl.Expr:
    """In how many earlier rows of its trajectory `flag` is true; the rows of a trajectory are consecutive."""
    before = flag.cum_sum() - flag
    is_first = pl.col("trajectory_id") != pl.col("trajectory_id").shift()
    return before - pl.when(is_first.fill_null(True)).then(before).forward_fill()


FORMAT = RowFormat(
    row=ReplyRow,
    summary="conversation after failed searches -> query that finds more (SFT: prompt, completion)",
    build_rows=build_rows,
    to_example=reply_to_example,
    learns_from_proposed=True,
    learns_from_hinted=True,
)
