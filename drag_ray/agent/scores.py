"""The utility of an evidence page's rank, of one search and of a column of them, and which ranks count."""

from collections.abc import Iterable
from math import log2
from typing import TYPE_CHECKING, TypeVar

from drag_ray.agent.tasks import ORDERING
from drag_ray.types import ActionKind, Trajectory, Turn

if TYPE_CHECKING:
    import polars as pl

_Number = TypeVar("_Number", float, "pl.Expr")


def compute_rank_score(rank: int | None, top_k: int) -> float:
    """The rank score of the agentic retrieval fine-tuning (DRAG) reference: 1 for the first page, 1 / top_k for the last.

    It is (top_k - rank + 1) / top_k for a 1-based rank within top_k, and 0 for one outside of it and for None.
    """
    return 0.0 if rank is None or rank > top_k else _credit(rank, top_k)


def rank_score(rank: "pl.Expr", top_k: "pl.Expr") -> "pl.Expr":
    """`compute_rank_score` of columns; a null rank scores 0."""
    import polars as pl

    return pl.when(rank <= top_k).then(_credit(rank, top_k)).otherwise(0.0)


def compute_utility(rank: int | None, depth: int) -> float:
    """The utility of the first evidence page's rank, to the depth that is evaluated: 1 / log2(1 + rank), and 0 beyond.

    It is the discount of DCG (Jaervelin and Kekaelaeinen, https://doi.org/10.1145/582415.582418): 1, .63, .5, .43 ... .29 at 10,
    so that a page that is lost from the end of the ranking costs as well.
    """
    return 0.0 if rank is None or rank > depth else 1 / log2(1 + rank)


def utility(rank: "pl.Expr", depth: "pl.Expr") -> "pl.Expr":
    """`compute_utility` of columns; a null rank is worth 0."""
    import polars as pl

    return pl.when(rank <= depth).then(1 / (1 + rank).log(2)).otherwise(0.0)


def gain(rank: "pl.Expr", question_rank: "pl.Expr", depth: "pl.Expr") -> "pl.Expr":
    """The gain of a search: the utility of its rank above that of the rank which the question itself has."""
    return utility(rank, depth) - utility(question_rank, depth)


def list_ranked_turns(trajectory: Trajectory) -> list[Turn]:
    """The turns whose ranking counts: all that search, and of a list that was put in order window by window the last."""
    ranked = [turn for turn in trajectory.turns if turn.action is ActionKind.SEARCH]
    return ranked[-1:] if trajectory.task in ORDERING else ranked


def list_ranks(trajectory: Trajectory) -> list[int | None]:
    """The ranks of the evidence in the rankings that count, in their order; none of a rollout that failed.

    A rollout that begins with the ranking of the question, to expand or to order it, and makes no other has found what that has.
    """
    if trajectory.error:
        return []
    ranks = [turn.ranking.evidence_rank for turn in list_ranked_turns(trajectory)]
    starts_ranked = trajectory.question_search.mode == "expand" or trajectory.task in ORDERING
    return ranks or ([trajectory.question_search.rank] if starts_ranked else [])


def find_best_rank(ranks: Iterable[int | None]) -> int | None:
    """The best of some ranks; None where none of them is known."""
    return min((rank for rank in ranks if rank is not None), default=None)


def _credit(rank: _Number, top_k: _Number) -> _Number:
    return (top_k - rank + 1) / top_k
