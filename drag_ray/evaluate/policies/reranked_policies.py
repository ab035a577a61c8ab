"""Policies whose pages are put in order by a model that reads the question with each, as an endpoint does with
`rerank`.

A reranker can put no page first that the search has not found. So beside `rerank`, the question's own pages in a new order,
stands what each policy finds, in its order.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from drag_ray.baselines.rerank import Rerank
from drag_ray.evaluate.policies.page_reading import AskedQuestion, ReadPages
from drag_ray.evaluate.policies.policy import name_beside
from drag_ray.evaluate.policies.retriever_rescoring import SearchAsAsked, rescore_with_retriever
from drag_ray.search.rerank import put_in_order
from drag_ray.types import Hits, Trajectory


def put_pages_in_order(
    trajectories: Mapping[str, Sequence[Trajectory]],
    policies: Sequence[str],
    reranker: Rerank,
    index_dir: Path,
    read_pages: Callable[[Sequence[AskedQuestion], SearchAsAsked], Sequence[ReadPages]],
) -> dict[str, list[Trajectory]]:
    """The trajectories after `rescore_with_retriever`, as `POLICY+rerank`, and those of the baseline `rerank` in the new order.

    Args:
        trajectories: of each policy and baseline, that of `rerank` as its search has found the pages.
        policies: the names of those that a model writes for.
        reranker: prepared.
        index_dir: the folder of the search index.
        read_pages: asked once for all pages; each is read once for a question, whichever policies find it.

    Raises:
        ConfigError: a model cannot be read, or vectors that it needs are damaged, or of another index or model.
    """

    def search(rollouts: Sequence[Trajectory]) -> list[Hits | None]:
        places: dict[str, list[int]] = {}
        for place, rollout in enumerate(rollouts):
            places.setdefault(rollout.question, []).append(place)
        asked = [AskedQuestion(question, tuple(rollouts[place] for place in own)) for question, own in places.items()]
        ordered: list[Hits | None] = [None] * len(rollouts)
        found = read_pages(asked, SearchAsAsked(reranker, index_dir, reranker.options.depth))
        for own, read in zip(places.values(), found, strict=True):
            for place, hits in zip(own, read.hits, strict=True):
                ordered[place] = hits and _put_in_order(hits, read, rollouts[place].depth)
        return ordered

    name = Rerank.name
    found = rescore_with_retriever(trajectories, [*policies, *([name] if trajectories.get(name) else [])], name, search)
    # The baseline's own pages in the new order are what it is; `rerank+rerank` there is none.
    if ordered := found.pop(name_beside(name, name), None):
        found[name] = ordered
    return found


def _put_in_order(hits: Hits, read: ReadPages, depth: int) -> Hits:
    """The best of them by their new scores."""
    return Hits(put_in_order(hits, [read.scores[hit.page] for hit in hits])[:depth], hits.is_partial)
