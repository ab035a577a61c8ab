"""What policies find when their searches are made by words and by vectors at once, as an endpoint makes them with the retrieval
`hybrid`.

Who can search by vectors does not choose between them and a policy: beside `hybrid`, the question searched by both, stands what
each policy adds to it, searched by both; and what baselines add that write no sentence, as `templates` does, so that a policy is
compared with them on equal terms.
"""

from collections.abc import Mapping, Sequence

from drag_ray.agent.keywords import choose_words
from drag_ray.baselines.hybrid import Hybrid
from drag_ray.baselines.weights import WeightedSearcher
from drag_ray.evaluate.searched_again import SearchAgain, add_beside, find_only_search, replace_found, search_as_asked
from drag_ray.search.dense import join_expanded
from drag_ray.search.hybrid import HybridSearcher
from drag_ray.search.searcher import Searcher
from drag_ray.types import Hits, Trajectory


def add_hybrid_policies(
    trajectories: Mapping[str, Sequence[Trajectory]],
    policies: Sequence[str],
    weighting: Sequence[str],
    hybrid: Hybrid,
    searcher: Searcher,
) -> dict[str, list[Trajectory]]:
    """What `add_beside` makes of them, as `NAME+hybrid`.

    Args:
        trajectories: of each policy and baseline.
        policies: the names of those that a model writes for.
        weighting: the names of baselines that search for terms with weights. Vectors are of sentences, so what their terms find
            is fused with what the vectors find for the question.
        hybrid: prepared, with the vectors of the index.
        searcher: the index.

    Raises:
        SearchIndexError: the vectors are damaged, or of another index or model.
        ConfigError: their model is gone.
    """
    of_terms = {id(rollout) for name in weighting for rollout in trajectories[name]}

    def prepare(rollouts: Sequence[Trajectory]) -> SearchAgain:
        asked = [rollout.question if id(rollout) in of_terms else write_asked(rollout) for rollout in rollouts]
        index = hybrid.open_searcher(searcher, list(dict.fromkeys(asked)))
        words = WeightedSearcher(searcher)

        def search_again(rollout: Trajectory) -> Trajectory:
            hits = (
                _search_terms(rollout, words, index)
                if id(rollout) in of_terms
                else search_as_asked(rollout, index, rollout.depth)
            )
            return rollout if hits is None else replace_found(rollout, hits)

        return search_again

    return add_beside(trajectories, [*policies, *weighting], Hybrid.name, prepare)


def _search_terms(trajectory: Trajectory, words: WeightedSearcher, index: HybridSearcher) -> Hits | None:
    """What the terms of a rollout find, fused with what the vectors find for its question; None where it failed."""
    turn = find_only_search(trajectory)
    return turn and index.search_beside(lambda depth: words.search(turn.query, depth), trajectory.question, trajectory.depth)


def write_asked(trajectory: Trajectory) -> str:
    """What is embedded for a rollout."""
    turn = find_only_search(trajectory)
    if turn and trajectory.query_mode == "rewrite":
        return turn.query
    return join_expanded(choose_words(trajectory.question, trajectory.question_words), turn.query if turn else "")
