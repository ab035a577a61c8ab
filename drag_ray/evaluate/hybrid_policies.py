"""What policies find when their searches are made by words and by vectors at once, as an endpoint makes them with the retrieval
`hybrid`.

Who can search by vectors does not choose between them and a policy: beside `hybrid`, the question searched by both, stands what
each policy adds to it, searched by both.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from drag_ray.agent.environment import PageIndex, compute_evidence_rank
from drag_ray.agent.keywords import choose_words
from drag_ray.baselines.hybrid import Hybrid
from drag_ray.evaluate.policies import name_beside
from drag_ray.evaluate.searched_again import find_only_search, replace_found
from drag_ray.search.dense import join_expanded
from drag_ray.search.searcher import Searcher
from drag_ray.types import Trajectory

_logger = logging.getLogger(__name__)


def add_hybrid_policies(
    trajectories: Mapping[str, Sequence[Trajectory]], policies: Sequence[str], hybrid: Hybrid, searcher: Searcher
) -> dict[str, list[Trajectory]]:
    """All these rollouts, and after those of each policy the same replies searched by both, as `POLICY+hybrid`.

    A policy that has taken a second turn in any rollout gets none: that turn depends on what the first has found.

    Args:
        trajectories: of each policy and baseline.
        policies: the names of those that a model writes for.
        hybrid: prepared, with the vectors of the index.
        searcher: the index.

    Raises:
        SearchIndexError: the vectors are damaged, or of another index or model.
        ConfigError: their model is gone.
    """
    once = [name for name in policies if all(len(rollout.turns) <= 1 for rollout in trajectories[name])]
    if several := [name for name in policies if name not in once]:
        _logger.info(
            f"{', '.join(several)}: took several turns, so what they find with {Hybrid.name} is not known without asking anew"
        )
    asked = [_write_text(rollout) for name in once for rollout in trajectories[name]]
    index = hybrid.open_searcher(searcher, list(dict.fromkeys(asked)))
    kept: dict[str, list[Trajectory]] = {}
    for name, rollouts in trajectories.items():
        kept[name] = list(rollouts)
        if name in once:
            kept[name_beside(name, Hybrid.name)] = [search_by_both(rollout, index) for rollout in rollouts]
    return kept


def search_by_both(trajectory: Trajectory, index: PageIndex) -> Trajectory:
    """The rollout with what this index finds for its search, or, where it left its question as it is, for the question."""
    words = choose_words(trajectory.question, trajectory.question_words)
    turn, depth = find_only_search(trajectory), trajectory.depth
    if turn and trajectory.query_mode == "expand":
        return replace_found(trajectory, index.search_expanded(words, turn.query, trajectory.question_weight, depth))
    if turn:
        return replace_found(trajectory, index.search(turn.query, depth))
    if trajectory.error or not trajectory.question_hits:
        return trajectory
    hits = tuple(index.search(words, depth))
    return replace(trajectory, question_hits=hits, question_rank=compute_evidence_rank(hits, trajectory.evidence))


def _write_text(trajectory: Trajectory) -> str:
    """What is embedded for it."""
    turn = find_only_search(trajectory)
    if turn and trajectory.query_mode == "rewrite":
        return turn.query
    return join_expanded(choose_words(trajectory.question, trajectory.question_words), turn.query if turn else "")
