"""What policies find when a model that reads the question with each page orders the pages anew, as an endpoint does with
`rerank`.

A reranker can put no page first that the search has not found. So beside `rerank`, the question's own pages in a new order,
stands what each policy finds, in its order.
"""

from collections.abc import Callable, Mapping, Sequence

from drag_ray.baselines.rerank import Rerank
from drag_ray.evaluate.hybrid_policies import write_asked
from drag_ray.evaluate.page_reading import AskedPages
from drag_ray.evaluate.policies import name_beside
from drag_ray.evaluate.searched_again import SearchAgain, add_beside, map_searches, replace_found, search_as_asked
from drag_ray.search.rerank import put_in_order
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hits, Trajectory

ReadPages = Callable[[Sequence[AskedPages]], Sequence[Sequence[float]]]
"""From questions with pages to how well each page answers its question; more is better."""


def add_reranked_policies(
    trajectories: Mapping[str, Sequence[Trajectory]],
    policies: Sequence[str],
    reranker: Rerank,
    searcher: Searcher,
    read_pages: ReadPages,
) -> dict[str, list[Trajectory]]:
    """What `add_beside` makes of them, as `POLICY+rerank`, and those of the baseline `rerank` in the new order.

    Args:
        trajectories: of each policy and baseline, that of `rerank` as its search has found the pages.
        policies: the names of those that a model writes for.
        reranker: prepared.
        searcher: the index.
        read_pages: asked once for all pages; each stands there once for a question, whichever policies find it.

    Raises:
        SearchIndexError: vectors that it needs are damaged, or of another index or model.
        ConfigError: a model cannot be read.
    """

    def prepare(rollouts: Sequence[Trajectory]) -> SearchAgain:
        index = reranker.open_searcher(searcher, list(dict.fromkeys(map(write_asked, rollouts))))
        hits = map_searches(lambda one: search_as_asked(one, index, max(reranker.options.depth, one.depth)), rollouts)
        found = {id(one): of_one for one, of_one in zip(rollouts, hits, strict=True)}
        scores = _read_once([(one.question, found[id(one)] or Hits()) for one in rollouts], read_pages)

        def put(rollout: Trajectory) -> Trajectory:
            hits = found[id(rollout)]
            if hits is None:
                return rollout
            ordered = put_in_order(hits, [scores[rollout.question, hit.page] for hit in hits])
            return replace_found(rollout, Hits(ordered[: rollout.depth], hits.is_partial))

        return put

    name = Rerank.name
    added = add_beside(trajectories, [*policies, *([name] if trajectories.get(name) else [])], name, prepare)
    # The baseline's own pages in the new order are what it is; `rerank+rerank` there is none.
    if ordered := added.pop(name_beside(name, name), None):
        added[name] = ordered
    return added


def _read_once(found: Sequence[tuple[str, Hits]], read_pages: ReadPages) -> dict[tuple[str, Evidence], float]:
    """The score of each page for the questions that it was found for."""
    pages: dict[str, dict[Evidence, None]] = {}
    for question, hits in found:
        pages.setdefault(question, {}).update((hit.page, None) for hit in hits)
    asked = [AskedPages(question, tuple(named)) for question, named in pages.items()]
    scores = read_pages(asked)
    return {
        (one.question, page): score
        for one, values in zip(asked, scores, strict=True)
        for page, score in zip(one.pages, values, strict=True)
    }
