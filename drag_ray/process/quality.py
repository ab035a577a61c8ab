"""The replies that nothing should be trained on, and why."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import polars as pl

from drag_ray.process import filters
from drag_ray.process.filters import FILTERS, FilterName
from drag_ray.variants import load_variant

FAILED = "failed"
"""The drop reason of a search or a call of a tool that did not run. No option turns it off."""


@dataclass(frozen=True)
class Filter:
    """A filter, as a module of `filters` declares it in FILTER.

    Attributes:
        label: the reason in words.
        find: true for each reply to drop, of turns with the columns that `add_drop_reasons` names; their drop_reason is empty
            for the replies that no earlier filter has found.
        drops_repeats: what it drops is only said twice, and by itself as good as the reply that stays.
    """

    label: str
    find: Callable[[pl.DataFrame], pl.Expr]
    drops_repeats: bool = False


def load_filter(name: FilterName) -> Filter:
    """The filter of a name."""
    return load_variant(filters, name).FILTER


def describe_reason(reason: str) -> str:
    """A drop reason in words."""
    return "the search or the tool failed" if reason == FAILED else load_filter(reason).label


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
        is_found = (pl.col("drop_reason") == "") & load_filter(name).find(judged)
        judged = judged.with_columns(drop_reason=pl.when(is_found).then(pl.lit(name)).otherwise("drop_reason"))
    return judged
