"""The replies that nothing should be trained on, and why: the first filter that finds a reply gives the reason."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import polars as pl

from drag_ray.agent.degeneration import copies_file_name, find_repetitive, join_words
from drag_ray.process.config import FilterName
from drag_ray.search.normal_form import normalise
from drag_ray.types import ActionKind

FAILED = "failed"
"""The drop reason of a search or a call of a tool that did not run. No option turns it off."""
# Shorter answers ("5", "no") are part of a word by chance.
_MIN_ANSWER_CHARS = 3
_SAID = pl.when(pl.col("action") == ActionKind.SEARCH.value).then("query_key").otherwise("reply")
"""What counts of a reply when it is compared: of a search the query, whatever was thought before it."""


@dataclass(frozen=True)
class Filter:
    """A filter of replies.

    Attributes:
        label: the reason in words.
        find: true for each reply to drop, of turns with the columns that `add_drop_reasons` names; their drop_reason is empty
            for the replies that no earlier filter has found.
        drops_repeats: what it drops is only said twice, and by itself as good as the reply that stays.
    """

    label: str
    find: Callable[[pl.DataFrame], pl.Expr]
    drops_repeats: bool = False


def _find_repeats(*same: pl.Expr) -> pl.Expr:
    """True for a reply in whose state an earlier one has the same values, of the replies that no earlier filter has found."""
    fine = pl.col("drop_reason") == ""
    keys = pl.struct("question_id", "state", "action", *(key.alias(f"same_{place}") for place, key in enumerate(same)), fine)
    return fine & ~keys.is_first_distinct()


def _find_told_answers(turns: pl.DataFrame) -> pl.Expr:
    """True for a query of a rollout with a hint that names an answer which its question does not hold.

    To learn such a query is to learn to make up answers. What the policy finds out by itself is its own to search for.
    """
    hinted = turns.filter("hinted").select("query", "question", "answers")
    told = [
        any(_tells(*(normalise(text).casefold() for text in (answer, query, question))) for answer in answers)
        for query, question, answers in hinted.iter_rows()
    ]
    is_hinted = turns["hinted"]
    return pl.lit(is_hinted.scatter(is_hinted.arg_true(), told) if told else is_hinted)


def _tells(answer: str, query: str, question: str) -> bool:
    return len(answer) >= _MIN_ANSWER_CHARS and answer in query and answer not in question


FILTERS: dict[FilterName, Filter] = {
    "truncated": Filter("cut at the token limit", lambda turns: pl.col("is_truncated")),
    "last_reply": Filter("a search in place of the answer", lambda turns: pl.col("is_late")),
    "repetitive": Filter("repeats itself", lambda turns: pl.lit(find_repetitive(turns["reply"]))),
    # File names are not searchable text.
    "file_name": Filter("names a file", lambda turns: copies_file_name(pl.col("query"), pl.col("evidence_files"))),
    "told_answer": Filter("gives away a hint", _find_told_answers),
    "duplicate": Filter("duplicate", lambda turns: _find_repeats(_SAID), drops_repeats=True),
    "near_duplicate": Filter(
        "near duplicate", lambda turns: _find_repeats(join_words(_SAID), pl.col("evidence_rank")), drops_repeats=True
    ),
}
"""By the names of `process.FILTERS`, in the order in which they are applied."""


def describe_reason(reason: str) -> str:
    """A drop reason in words."""
    return "the search or the tool failed" if reason == FAILED else FILTERS[reason].label


def add_drop_reasons(turns: pl.DataFrame, chosen: Collection[FilterName]) -> pl.DataFrame:
    """Add the column drop_reason: the first thing that is wrong with a reply, empty if nothing is.

    Of replies that are the same, or nearly so, the first in the order of the rows stays.

    Args:
        turns: with the columns question_id, question, answers, hinted, state, action, query, query_key, reply, evidence_rank,
            has_error, is_truncated, is_late and evidence_files.
        chosen: the filters to apply.
    """
    judged = turns.with_columns(drop_reason=pl.when("has_error").then(pl.lit(FAILED)).otherwise(pl.lit("")))
    for name in (name for name in FILTERS if name in chosen):
        is_found = (pl.col("drop_reason") == "") & FILTERS[name].find(judged)
        judged = judged.with_columns(drop_reason=pl.when(is_found).then(pl.lit(name)).otherwise("drop_reason"))
    return judged
