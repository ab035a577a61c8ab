"""Which replies nothing should be trained on, and why."""

from collections.abc import Sequence

import polars as pl

from drag_ray.agent.degeneration import copies_file_name, find_repetitive, join_words
from drag_ray.process.config import FilterName
from drag_ray.types import ActionKind

FILTER_LABELS = {
    "failed": "the search failed",
    "truncated": "cut at the token limit",
    "repetitive": "repeats itself",
    "file_name": "names a file",
    "told_answer": "gives away a hint",
    "duplicate": "duplicate",
    "near_duplicate": "near duplicate",
}
"""Every drop reason, in words."""
# Shorter answers ("5", "no") are part of a word by chance.
_MIN_ANSWER_CHARS = 3


def add_drop_reasons(turns: pl.DataFrame, filters: Sequence[FilterName]) -> pl.DataFrame:
    """Add the column drop_reason: the first thing that is wrong with a reply, empty if nothing is.

    `failed` is a search that did not run, which is always a reason; the others are those of `ProcessConfig.filters`. Of
    replies that are the same, or nearly so, the first in the order of the rows stays.

    Args:
        turns: with the columns question_id, question, answers, hinted, state, action, query, query_key, reply, evidence_rank,
            has_error, is_truncated and evidence_files.
    """
    checks = {
        "truncated": pl.col("is_truncated"),
        "repetitive": pl.lit(find_repetitive(turns["reply"])),
        "file_name": copies_file_name(pl.col("query"), pl.col("evidence_files")),
        "told_answer": pl.lit(find_told_answers(turns)),
    }
    reason = pl.when(pl.col("has_error")).then(pl.lit("failed"))
    for name, fails in checks.items():
        if name in filters:
            reason = reason.when(fails).then(pl.lit(name))
    judged = turns.with_columns(drop_reason=reason.otherwise(pl.lit("")))
    said = pl.when(pl.col("action") == ActionKind.SEARCH.value).then("query_key").otherwise("reply")
    if "duplicate" in filters:
        judged = _drop_later(judged, "duplicate", said)
    if "near_duplicate" in filters:
        judged = _drop_later(judged, "near_duplicate", join_words(said), pl.col("evidence_rank"))
    return judged


def find_told_answers(turns: pl.DataFrame) -> pl.Series:
    """True for a query that names an answer which its question does not hold, and which only a hint could have told.

    To learn such a query is to learn to make up answers. What the policy finds out by itself is its own to search for.
    """
    hinted = turns.filter("hinted").select("query", "question", "answers")
    told = [
        any(_tells(answer.casefold(), query.casefold(), question.casefold()) for answer in answers)
        for query, question, answers in hinted.iter_rows()
    ]
    is_hinted = turns["hinted"]
    return is_hinted.scatter(is_hinted.arg_true(), told) if told else is_hinted


def _tells(answer: str, query: str, question: str) -> bool:
    return len(answer) >= _MIN_ANSWER_CHARS and answer in query and answer not in question


def _drop_later(turns: pl.DataFrame, reason: str, *same: pl.Expr) -> pl.DataFrame:
    """Give `reason` to every reply without another one that says the same as an earlier one in its state."""
    fine = pl.col("drop_reason") == ""
    keys = pl.struct("question_id", "state", "action", *(key.alias(f"same_{place}") for place, key in enumerate(same)), fine)
    repeats = fine & ~keys.is_first_distinct()
    return turns.with_columns(drop_reason=pl.when(repeats).then(pl.lit(reason)).otherwise("drop_reason"))
