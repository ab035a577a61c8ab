"""What policies find when a model that reads the question with each page orders the pages anew, as an endpoint does with
`rerank`.

A reranker can put no page first that the search has not found. So beside `rerank`, the question's own pages in a new order,
stands what each policy finds, in its order.
"""

from collections.abc import Mapping, Sequence

from drag_ray.agent.environment import PageIndex
from drag_ray.baselines.rerank import Rerank
from drag_ray.evaluate.hybrid_policies import write_asked
from drag_ray.evaluate.searched_again import SearchAgain, add_beside, replace_found, search_as_asked
from drag_ray.search.rerank import Score, rerank
from drag_ray.search.searcher import Searcher
from drag_ray.types import Hits, Trajectory


def add_reranked_policies(
    trajectories: Mapping[str, Sequence[Trajectory]], policies: Sequence[str], reranker: Rerank, searcher: Searcher
) -> dict[str, list[Trajectory]]:
    """What `add_beside` makes of them, as `POLICY+rerank`. A page that several policies find for a question is read once.

    Args:
        trajectories: of each policy and baseline.
        policies: the names of those that a model writes for.
        reranker: prepared.
        searcher: the index.

    Raises:
        SearchIndexError: vectors that it needs are damaged, or of another index or model.
        ConfigError: a model cannot be read.
    """

    def prepare(rollouts: Sequence[Trajectory]) -> SearchAgain:
        index = reranker.open_finder(searcher, list(dict.fromkeys(map(write_asked, rollouts))))
        score = reranker.load_score()
        return lambda rollout: search_in_order(rollout, index, searcher, score, reranker.options.depth)

    return add_beside(trajectories, policies, Rerank.name, prepare)


def search_in_order(trajectory: Trajectory, index: PageIndex, searcher: Searcher, score: Score, depth: int) -> Trajectory:
    """The rollout with the pages of its search in a new order.

    Args:
        trajectory: of one turn.
        index: what finds the pages.
        searcher: the index, which has the texts.
        score: reads the question with each.
        depth: pages that it reads, at least as many as the rollout records.
    """
    hits = search_as_asked(trajectory, index, max(depth, trajectory.depth))
    if hits is None:
        return trajectory
    ordered = rerank(trajectory.question, hits, searcher, score)
    return replace_found(trajectory, Hits(ordered[: trajectory.depth], hits.is_partial))
