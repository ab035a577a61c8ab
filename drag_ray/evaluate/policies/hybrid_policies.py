"""Policies whose searches are made by words and by vectors at once, as an endpoint makes them with the retrieval
`hybrid`.

Who can search by vectors does not choose between them and a policy: beside `hybrid`, the question searched by both, stands what
each policy adds to it, searched by both; and what baselines add that write no sentence, as `templates` does, so that a policy is
compared with them on equal terms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from drag_ray.baselines.hybrid import Hybrid
from drag_ray.baselines.weights import WeightedSearcher
from drag_ray.evaluate.policies.retriever_rescoring import (
    SearchAsAsked,
    find_only_search,
    rescore_with_retriever,
    search_on_cluster,
)
from drag_ray.search.hybrid import HybridSearcher
from drag_ray.search.searcher import Searcher
from drag_ray.types import Hits, Trajectory


def search_by_both(
    trajectories: Mapping[str, Sequence[Trajectory]],
    policies: Sequence[str],
    weighting: Sequence[str],
    hybrid: Hybrid,
    index_dir: Path,
) -> dict[str, list[Trajectory]]:
    """The trajectories after `rescore_with_retriever`, as `NAME+hybrid`.

    Args:
        trajectories: of each policy and baseline.
        policies: the names of those that a model writes for.
        weighting: the names of baselines that search for terms with weights. Vectors are of sentences, so what their terms find
            is fused with what the vectors find for the question.
        hybrid: prepared, with the vectors of the index.
        index_dir: the folder of the search index.

    Raises:
        SearchIndexError: the vectors are damaged, or of another index or model.
        ConfigError: their model is gone.
    """
    as_asked, of_terms = SearchAsAsked(hybrid, index_dir), SearchTermsBeside(hybrid, index_dir)
    found: dict[str, list[Trajectory]] = {}
    for names, search in ((policies, as_asked), (weighting, of_terms)):
        found |= rescore_with_retriever(trajectories, names, Hybrid.name, partial(search_on_cluster, search, index_dir=index_dir))
    return found


@dataclass(frozen=True)
class SearchTermsBeside:
    """Searches with the weighted terms of rollouts, fused with those by the vectors of their questions.

    Attributes:
        hybrid: prepared.
        index_dir: the folder of the search index.
    """

    hybrid: Hybrid
    index_dir: Path

    def __call__(self, rollouts: Sequence[Trajectory]) -> list[Hits | None]:
        """A `Search`; None for a rollout that failed. Errors are those of `SearchAsAsked`."""
        searcher = Searcher(self.index_dir)
        index = self.hybrid.open_searcher(searcher, list(dict.fromkeys(rollout.question for rollout in rollouts)))
        words = WeightedSearcher(searcher)
        return [_search_terms(rollout, words, index) for rollout in rollouts]


def _search_terms(trajectory: Trajectory, words: WeightedSearcher, index: HybridSearcher) -> Hits | None:
    turn = find_only_search(trajectory)
    return turn and index.search_beside(lambda depth: words.search(turn.query, depth), trajectory.question, trajectory.depth)
