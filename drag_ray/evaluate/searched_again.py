"""Rollouts as they would have been with another search for the same reply.

Where a rollout has one turn, its reply does not depend on what is found, so another search costs no token.
"""

from dataclasses import replace

from drag_ray.agent.environment import compute_evidence_rank
from drag_ray.agent.scores import compute_rank_score
from drag_ray.types import ActionKind, Hits, Trajectory, Turn


def find_only_search(trajectory: Trajectory) -> Turn | None:
    """The turn of a rollout that has searched once and done nothing else; None of any other.

    What was chosen of several searches was chosen by what they found, so it is none either.
    """
    if len(trajectory.turns) != 1 or trajectory.error:
        return None
    [turn] = trajectory.turns
    return turn if turn.action is ActionKind.SEARCH and not turn.error and not turn.num_drawn_tokens else None


def replace_found(trajectory: Trajectory, hits: Hits) -> Trajectory:
    """The rollout with other pages for its only search."""
    [turn] = trajectory.turns
    rank = compute_evidence_rank(tuple(hits), trajectory.evidence)
    score = compute_rank_score(rank, trajectory.top_k)
    turn = replace(turn, hits=tuple(hits), evidence_rank=rank, rank_score=score, partial_search=hits.is_partial)
    return replace(trajectory, turns=(turn,))
