"""Headroom: what the best of all first searches would find, chosen anew for each question."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from drag_ray.baselines.question import RawQuestion
from drag_ray.evaluate.measure import Unit
from drag_ray.evaluate.question_result import QuestionResult, compute_reciprocal_rank, is_within

_CUTOFFS = (1, 3, 10)


@dataclass(frozen=True, slots=True)
class Headroom:
    """One measure of the first searches: that of the best single policy, and that of an oracle which knows for each question
    whose search ranks the evidence best.

    What an oracle over more policies finds is more, by luck as well: it is a bound, not a promise.
    """

    name: str
    label: str
    unit: Unit
    best_policy: str
    best: float
    oracle: float

    @property
    def gain(self) -> float:
        """The difference of the two."""
        return self.oracle - self.best


def compute_headroom(
    results: Mapping[str, Sequence[QuestionResult]], question_ranks: Sequence[int | None] | None
) -> tuple[Headroom, ...]:
    """Hit@1, Hit@3, Hit@10 (those within the depth) and MRR of the best policy and of the oracle over all.

    The question searched as it stands takes part, whether it is among the policies or not.

    Args:
        results: the results of each policy, for the same questions in the same order.
        question_ranks: as `find_question_ranks` finds them.
    """
    ranks: dict[str, Sequence[int | None]] = {
        policy: [result.searches.first_search_rank for result in rows] for policy, rows in results.items()
    }
    if question_ranks:
        ranks.setdefault(RawQuestion.name, question_ranks)
    best_ranks = [min((rank for rank in found if rank), default=None) for found in zip(*ranks.values(), strict=True)]
    depth = next(iter(results.values()))[0].depth
    measures: list[tuple[str, str, Unit, Callable[[int | None], float]]] = [
        (f"hit_at_{k}", f"Hit@{k}", Unit.SHARE, lambda rank, k=k: float(is_within(rank, k))) for k in _CUTOFFS if k <= depth
    ]
    measures.append(("mrr", "MRR", Unit.SCORE, compute_reciprocal_rank))
    found = []
    for name, label, unit, compute in measures:
        means = {policy: sum(map(compute, policy_ranks)) / len(best_ranks) for policy, policy_ranks in ranks.items()}
        best_policy = max(means, key=lambda policy: means[policy])
        found.append(
            Headroom(name, label, unit, best_policy, means[best_policy], sum(map(compute, best_ranks)) / len(best_ranks))
        )
    return tuple(found)
