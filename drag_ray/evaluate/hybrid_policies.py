"""What policies find when their searches are made by words and by vectors at once, as an endpoint makes them with the retrieval
`hybrid`.

Who can search by vectors does not choose between them and a policy: beside `hybrid`, the question searched by both, stands what
each policy adds to it, searched by both.
"""

from collections.abc import Mapping, Sequence

from drag_ray.agent.environment import PageIndex
from drag_ray.agent.keywords import choose_words
from drag_ray.baselines.hybrid import Hybrid
from drag_ray.evaluate.searched_again import SearchAgain, add_beside, find_only_search, replace_found, search_as_asked
from drag_ray.search.dense import join_expanded
from drag_ray.search.searcher import Searcher
from drag_ray.types import Trajectory


def add_hybrid_policies(
    trajectories: Mapping[str, Sequence[Trajectory]], policies: Sequence[str], hybrid: Hybrid, searcher: Searcher
) -> dict[str, list[Trajectory]]:
    """What `add_beside` makes of them, as `POLICY+hybrid`.

    Args:
        trajectories: of each policy and baseline.
        policies: the names of those that a model writes for.
        hybrid: prepared, with the vectors of the index.
        searcher: the index.

    Raises:
        SearchIndexError: the vectors are damaged, or of another index or model.
        ConfigError: their model is gone.
    """

    def prepare(rollouts: Sequence[Trajectory]) -> SearchAgain:
        index = hybrid.open_searcher(searcher, list(dict.fromkeys(map(write_asked, rollouts))))
        return lambda rollout: search_by_both(rollout, index)

    return add_beside(trajectories, policies, Hybrid.name, prepare)


def search_by_both(trajectory: Trajectory, index: PageIndex) -> Trajectory:
    """The rollout with what this index finds for its search, or, where it left its question as it is, for the question."""
    hits = search_as_asked(trajectory, index, trajectory.depth)
    return trajectory if hits is None else replace_found(trajectory, hits)


def write_asked(trajectory: Trajectory) -> str:
    """What is embedded for a rollout."""
    turn = find_only_search(trajectory)
    if turn and trajectory.query_mode == "rewrite":
        return turn.query
    return join_expanded(choose_words(trajectory.question, trajectory.question_words), turn.query if turn else "")
