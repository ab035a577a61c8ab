"""What policies find when their searches are made by words and by vectors at once, as an endpoint makes them with the retrieval
`hybrid`.

Who can search by vectors does not choose between them and a policy: beside `hybrid`, the question searched by both, stands what
each policy adds to it, searched by both; and what baselines add that write no sentence, as `templates` does, so that a policy is
compared with them on equal terms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drag_ray.agent.environment import PageIndex, PageSearcher
from drag_ray.agent.keywords import choose_words
from drag_ray.baselines.baseline import Baseline, TermBaseline
from drag_ray.baselines.hybrid import Hybrid, HybridConfig
from drag_ray.evaluate.policies import name_beside
from drag_ray.evaluate.searched_again import SearchAgain, add_beside, find_only_search, replace_found, search_as_asked
from drag_ray.search.dense import join_expanded
from drag_ray.search.fusion import fuse_rankings
from drag_ray.search.searcher import Searcher
from drag_ray.types import Hits, Trajectory


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


def add_hybrid_baselines(
    trajectories: Mapping[str, Sequence[Trajectory]], baselines: Mapping[str, Baseline], hybrid: Hybrid, searcher: Searcher
) -> dict[str, list[Trajectory]]:
    """All these rollouts, and after those of each baseline that searches for terms with weights the same, as `NAME+hybrid`: what
    its terms find, fused with what the vectors find for the question.

    Args:
        trajectories: of each policy and baseline.
        baselines: by name, prepared.
        hybrid: prepared, with the vectors of the index.
        searcher: the index.

    Raises:
        SearchIndexError: the vectors are damaged, or of another index or model.
        ConfigError: their model is gone.
    """
    weighting = {name: baseline for name, baseline in baselines.items() if isinstance(baseline, TermBaseline)}
    asked = list(dict.fromkeys(rollout.question for name in weighting for rollout in trajectories[name]))
    if not asked:
        return {policy: list(rollouts) for policy, rollouts in trajectories.items()}
    dense = hybrid.open_dense(searcher, asked)
    kept: dict[str, list[Trajectory]] = {}
    for name, rollouts in trajectories.items():
        kept[name] = list(rollouts)
        if name in weighting:
            both = TwoSearches(weighting[name].open_searcher(searcher), dense, hybrid.options)
            kept[name_beside(name, Hybrid.name)] = [both.search_again(rollout) for rollout in rollouts]
    return kept


@dataclass(frozen=True)
class TwoSearches:
    """A baseline's own search, and one by vectors for the question, fused.

    Attributes:
        words: answers the baseline's queries.
        vectors: answers questions.
        options: of the fusion.
    """

    words: PageSearcher
    vectors: PageSearcher
    options: HybridConfig

    def search_again(self, trajectory: Trajectory) -> Trajectory:
        """The rollout with what both find; one that failed as it is."""
        turn = find_only_search(trajectory)
        if turn is None:
            return trajectory
        depth = max(self.options.depth, trajectory.depth)
        rankings = [self.words.search(turn.query, depth), self.vectors.search(trajectory.question, depth)]
        fused = fuse_rankings(rankings, self.options.rrf_k)[: trajectory.depth]
        return replace_found(trajectory, Hits(fused, any(ranking.is_partial for ranking in rankings)))


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
