"""The weight of a row in the loss: its gain, or one of the schemes of the agentic retrieval fine-tuning (DRAG) reference.

None counts less than the floor of that reference.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # options name the schemes, and the command line does without Polars
    import polars as pl

_FLOOR = 0.1


@dataclass(frozen=True)
class Outcome:
    """The outcome of the query that a row teaches, as columns."""

    gain: "pl.Expr"
    rank_score: "pl.Expr"
    evidence_rank: "pl.Expr"
    cumulative_effort: "pl.Expr"


WEIGHTS: "dict[str, Callable[[Outcome], pl.Expr]]" = {
    "none": lambda row: row.rank_score**0,  # 1
    "gain": lambda row: row.gain.clip(_FLOOR),
    "rank_score": lambda row: row.rank_score.clip(_FLOOR),
    "rank_sq": lambda row: (row.rank_score**2).clip(_FLOOR),
    "inv_effort": lambda row: row.cumulative_effort.clip(_FLOOR),
    "binary": lambda row: 0.5 + 0.5 * (row.evidence_rank == 1),
}

if TYPE_CHECKING:
    WeightScheme = str
else:
    WeightScheme = Literal[tuple(WEIGHTS)]


def row_weight(scheme: WeightScheme) -> "pl.Expr":
    """The weight of a row, from those of the columns gain, rank_score, evidence_rank, cumulative_effort that the scheme needs."""
    import polars as pl

    outcome = Outcome(pl.col("gain"), pl.col("rank_score"), pl.col("evidence_rank"), pl.col("cumulative_effort"))
    return WEIGHTS[scheme](outcome).alias("weight")
