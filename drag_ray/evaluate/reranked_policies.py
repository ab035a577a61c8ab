"""What policies find when a model that reads the question with each page orders the pages anew, as an endpoint does with
`rerank`.

A reranker can put no page first that the search has not found. So beside `rerank`, the question's own pages in a new order,
stands what each policy finds, in its order.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from drag_ray.baselines.rerank import Rerank
from drag_ray.evaluate.page_reading import AskedPages
from drag_ray.evaluate.policies import name_beside
from drag_ray.evaluate.searched_again import SearchAsAsked, search_anew, search_on_cluster
from drag_ray.search.rerank import put_in_order
from drag_ray.types import Evidence, Hits, Trajectory

ReadPages = Callable[[Sequence[AskedPages]], Sequence[Sequence[float]]]
"""From questions with pages to how well each page answers its question; more is better."""


def put_pages_in_order(
    trajectories: Mapping[str, Sequence[Trajectory]],
    policies: Sequence[str],
    reranker: Rerank,
    index_dir: Path,
    read_pages: ReadPages,
) -> dict[str, list[Trajectory]]:
    """What `search_anew` makes of them, as `POLICY+rerank`, and those of the baseline `rerank` in the new order.

    Args:
        trajectories: of each policy and baseline, that of `rerank` as its search has found the pages.
        policies: the names of those that a model writes for.
        reranker: prepared.
        index_dir: the folder of the search index.
        read_pages: asked once for all pages; each stands there once for a question, whichever policies find it.

    Raises:
        SearchIndexError: vectors that it needs are damaged, or of another index or model.
        ConfigError: a model cannot be read.
    """

    def search(rollouts: Sequence[Trajectory]) -> list[Hits | None]:
        hits = search_on_cluster(SearchAsAsked(reranker, index_dir, reranker.options.depth), rollouts, index_dir)
        found = list(zip(rollouts, hits, strict=True))
        scores = _read_once([(rollout.question, of_one or Hits()) for rollout, of_one in found], read_pages)

        def put(rollout: Trajectory, of_one: Hits) -> Hits:
            ordered = put_in_order(of_one, [scores[rollout.question, hit.page] for hit in of_one])
            return Hits(ordered[: rollout.depth], of_one.is_partial)

        return [None if of_one is None else put(rollout, of_one) for rollout, of_one in found]

    name = Rerank.name
    found = search_anew(trajectories, [*policies, *([name] if trajectories.get(name) else [])], name, search)
    # The baseline's own pages in the new order are what it is; `rerank+rerank` there is none.
    if ordered := found.pop(name_beside(name, name), None):
        found[name] = ordered
    return found


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
