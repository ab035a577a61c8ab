"""Rollouts as they would have been with another search for the same reply.

Where a rollout has one turn, its reply does not depend on what is found, so another search costs no token.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from drag_ray.agent.environment import PageIndex, compute_evidence_rank
from drag_ray.agent.keywords import choose_words
from drag_ray.agent.scores import compute_rank_score
from drag_ray.evaluate.policies import name_beside
from drag_ray.types import ActionKind, Hits, Trajectory, Turn

_logger = logging.getLogger(__name__)

_Found = TypeVar("_Found")
SearchAgain = Callable[[Trajectory], Trajectory]
"""The same rollout with what another search finds."""


def add_beside(
    trajectories: Mapping[str, Sequence[Trajectory]],
    policies: Sequence[str],
    name: str,
    prepare: Callable[[Sequence[Trajectory]], SearchAgain],
) -> dict[str, list[Trajectory]]:
    """All these rollouts, and after those of each policy the same replies with another search, as `POLICY+name`.

    A policy that has taken a second turn in any rollout gets none: that turn depends on what the first has found.

    Args:
        trajectories: of each policy and baseline.
        policies: the names of those that a model writes for.
        name: what the other search is called.
        prepare: makes it for the rollouts that are going to be searched for.
    """
    once = [policy for policy in policies if all(len(rollout.turns) <= 1 for rollout in trajectories[policy])]
    if several := [policy for policy in policies if policy not in once]:
        _logger.info(f"{', '.join(several)}: took several turns, so what they find with {name} is not known without asking anew")
    if not once:
        return {policy: list(rollouts) for policy, rollouts in trajectories.items()}
    search_again = prepare([rollout for policy in once for rollout in trajectories[policy]])
    kept: dict[str, list[Trajectory]] = {}
    for policy, rollouts in trajectories.items():
        kept[policy] = list(rollouts)
        if policy in once:
            kept[name_beside(policy, name)] = map_searches(search_again, rollouts)
    return kept


def map_searches(search: Callable[[Trajectory], _Found], rollouts: Sequence[Trajectory]) -> list[_Found]:
    """What a search finds for each rollout, on all cores of this machine: an index may be asked by several threads."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(search, rollouts))


def search_as_asked(trajectory: Trajectory, index: PageIndex, depth: int) -> Hits | None:
    """What an index finds for a rollout's only search, or, where it left its question as it is, for the question; None where it
    failed, and where nothing was searched for."""
    words = choose_words(trajectory.question, trajectory.question_words)
    turn = find_only_search(trajectory)
    if turn and trajectory.query_mode == "expand":
        return index.search_expanded(words, turn.query, trajectory.question_weight, depth)
    if turn:
        return index.search(turn.query, depth)
    return None if trajectory.error or not trajectory.question_hits else index.search(words, depth)


def find_only_search(trajectory: Trajectory) -> Turn | None:
    """The turn of a rollout that has searched once and done nothing else; None of any other.

    What was chosen of several searches was chosen by what they found, so it is none either.
    """
    if len(trajectory.turns) != 1 or trajectory.error:
        return None
    [turn] = trajectory.turns
    return turn if turn.action is ActionKind.SEARCH and not turn.error and not turn.num_drawn_tokens else None


def replace_found(trajectory: Trajectory, hits: Hits) -> Trajectory:
    """The rollout with other pages for its only search, or for its question where it has none."""
    rank = compute_evidence_rank(tuple(hits), trajectory.evidence)
    if find_only_search(trajectory) is None:
        return replace(trajectory, question_hits=tuple(hits), question_rank=rank)
    [turn] = trajectory.turns
    score = compute_rank_score(rank, trajectory.top_k)
    turn = replace(turn, hits=tuple(hits), evidence_rank=rank, rank_score=score, partial_search=hits.is_partial)
    return replace(trajectory, turns=(turn,))
