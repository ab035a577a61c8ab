"""The part of an index that a request may find: all of it, or what the groups of its key and its filter leave."""

import asyncio
import json
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from functools import partial

from drag_ray.errors import ServeError
from drag_ray.search.metadata import EVERYTHING, Filter, FilterError
from drag_ray.search.searcher import Searcher
from drag_ray.search.vectors import PROBE
from drag_ray.serve.ingress.key import Groups
from drag_ray.serve.ingress.limits import RefusalError
from drag_ray.serve.search.messages import IndexAnswer
from drag_ray.serve.search.retrieval import Retrieval

_MAX_KEPT, _MIN_KEPT, _KEPT_PAGES = 64, 4, 16_000_000
"""Filters, and groups of keys, for which what they leave of the index is kept: of large indexes fewer, for each takes up to 35
bytes a document."""


class ServedIndex:
    """An index that is searched, or a part of it."""

    def __init__(self, searcher: Searcher, retrieval: Retrieval) -> None:
        self.searcher = searcher
        self.retrieval = retrieval
        self._opened_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._restrictions: tuple[str, ...] = ()
        self._kept = _Kept(max(_MIN_KEPT, min(_MAX_KEPT, _KEPT_PAGES // max(1, searcher.num_pages))))

    async def limit_to(self, groups: Groups) -> "ServedIndex":
        """The documents that a key may see. Raises RefusalError where the key does not say what it may see, or the index does not
        say which documents these are."""
        has_groups = bool(self.searcher.metadata and self.searcher.metadata.access_column)
        if EVERYTHING in groups if groups is not None else not has_groups:
            return self
        if groups is None or not has_groups:
            raise RefusalError(403, "this key may see no document: the endpoint's key file does not say which, or the index not.")
        return await self._restrict(json.dumps(sorted(groups)), partial(self.searcher.limit_to, groups))

    async def narrow(self, conditions: Filter) -> "ServedIndex":
        """The documents that meet a filter. Raises RefusalError where the index cannot be asked for it."""
        try:
            return await self._restrict(json.dumps(conditions, sort_keys=True), partial(self.searcher.narrow, conditions))
        except FilterError as error:
            raise RefusalError(400, str(error)) from None

    async def _restrict(self, name: str, restrict: Callable[[], Searcher]) -> "ServedIndex":
        restrictions = (*self._restrictions, name)
        restricted = self._kept.take(restrictions)
        if restricted is None:
            restricted = copy(self)
            restricted.searcher = await asyncio.to_thread(restrict)
            restricted.retrieval = self.retrieval.restrict(restricted.searcher)
            restricted._restrictions = restrictions
        self._kept.put(restrictions, restricted)
        return restricted

    def describe(self, problem: str) -> IndexAnswer:
        """The index, and what kept a newer one from taking its place, of which a key of some groups is told no more than that."""
        searcher, shown = self.searcher, self.searcher.shown_rows
        return IndexAnswer(
            fingerprint="" if searcher.is_limited else searcher.record.fingerprint,
            opened_at=self._opened_at,
            pages=searcher.num_pages if shown is None else int(shown.sum()),
            filters=searcher.list_filters(),
            problem="a newer index cannot be used; see the endpoint's log." if problem and searcher.is_limited else problem,
        )

    def warm_up(self, earlier: "ServedIndex") -> None:
        """Search once in each way, before this takes the place of an earlier one. Raises ServeError where the earlier one can be
        searched in a way in which this cannot and SearchIndexError where the index is damaged."""
        if earlier.retrieval.pictures and not self.retrieval.pictures:
            raise ServeError("the newer index has no vectors of page pictures that fit it.")
        if missing := earlier.retrieval.names - self.retrieval.names:
            raise ServeError(
                f"the newer index has no vectors that fit it, so it cannot be searched by {', '.join(sorted(missing))}."
            )
        for name in self.retrieval.names:
            self.retrieval.choose(name).search(PROBE, 1)

    def retire(self) -> None:
        """Forget what was kept for later requests, and keep no more: there are none, and what is kept would hold this."""
        self._kept.end()


class _Kept:
    """The latest parts of an index by their restrictions, so many at most."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._indexes: dict[tuple[str, ...], ServedIndex] = {}  # the latest last

    def take(self, restrictions: tuple[str, ...]) -> ServedIndex | None:
        return self._indexes.pop(restrictions, None)

    def put(self, restrictions: tuple[str, ...], index: ServedIndex) -> None:
        self._indexes[restrictions] = index
        if len(self._indexes) > self._capacity:
            del self._indexes[next(iter(self._indexes))]

    def end(self) -> None:
        self._capacity = 0
        self._indexes.clear()
