"""Rollouts scored again under other terms, from what they have recorded: no model and no index is asked."""

from dataclasses import dataclass, replace

from drag_ray.agent.environment import compute_evidence_rank
from drag_ray.agent.scores import compute_rank_score
from drag_ray.errors import DataError
from drag_ray.types import Evidence, Hit, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Terms:
    """How many pages count as shown, and how far rankings are looked at; 0 leaves what the rollouts had."""

    top_k: int = 0
    depth: int = 0


def rescore(trajectory: Trajectory, terms: Terms) -> Trajectory:
    """The rollout as if `terms.top_k` pages of each of its searches had counted, to `terms.depth`.

    Its replies are those of a policy that was shown as many pages as before, which matters where it searched again.

    Raises:
        DataError: its rankings were not recorded as deep, or the depth is below top_k.
    """
    top_k, depth = terms.top_k or trajectory.top_k, terms.depth or trajectory.depth
    if depth > trajectory.depth or depth < top_k:
        raise DataError(
            f"trajectory {trajectory.id!r}: top_k {top_k}, depth {depth}: expected a depth of at least top_k and at most "
            f"{trajectory.depth}, to which its rankings were recorded. For more, run it again with a larger agent.depth."
        )
    hits, rank = _cut(trajectory.question_hits, trajectory.evidence, depth)
    return replace(
        trajectory,
        top_k=top_k,
        depth=depth,
        turns=tuple(_rescore_turn(turn, trajectory.evidence, top_k, depth) for turn in trajectory.turns),
        question_hits=hits,
        question_rank=rank,
    )


def _rescore_turn(turn: Turn, evidence: tuple[Evidence, ...], top_k: int, depth: int) -> Turn:
    hits, rank = _cut(turn.hits, evidence, depth)
    return replace(turn, hits=hits, evidence_rank=rank, rank_score=compute_rank_score(rank, top_k))


def _cut(ranking: tuple[Hit, ...], evidence: tuple[Evidence, ...], depth: int) -> tuple[tuple[Hit, ...], int | None]:
    hits = tuple(hit for hit in ranking if hit.rank <= depth)
    return hits, compute_evidence_rank(hits, evidence)
