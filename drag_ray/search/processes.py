"""A batch of queries on all cores, by processes that each have the index open.

Threads would not do: a third of a query is Python, which runs on one core at a time. The processes are spawned, not forked,
since the process that searches may be one that holds an engine. A spawned process imports the main script, so a script that
searches a batch does so under `if __name__ == "__main__":`.
"""

import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path
from typing import NamedTuple

from drag_ray.errors import SearchIndexError
from drag_ray.search.config import Operator, Syntax
from drag_ray.search.index import IndexRecord
from drag_ray.search.ranker import Ranker, Ranking

_MAX_CHUNK = 512
_CHUNKS_EACH = 4
"""Chunks of a batch for each process: the last ones even out what the first ones left uneven."""


class IndexView(NamedTuple):
    """An index and how its queries are read. `record` is what the searching process found there."""

    index_dir: Path
    operator: Operator
    syntax: Syntax
    record: IndexRecord


class SearchProcesses:
    """As many processes as there are cores. They start with the first batch and end with this object."""

    def __init__(self, view: IndexView) -> None:
        self._view = view
        self._num_processes = len(os.sched_getaffinity(0))
        self._pool = ProcessPoolExecutor(self._num_processes, multiprocessing.get_context("spawn"), end_with_parent)

    def rank(self, texts: Sequence[str], top_k: int) -> list[Ranking]:
        """The hits of `Ranker.rank` for each text.

        Raises:
            SearchIndexError: the index is another one by now, or a process died.
        """
        size = min(_MAX_CHUNK, -(-len(texts) // (_CHUNKS_EACH * self._num_processes)))
        chunks = [texts[start : start + size] for start in range(0, len(texts), size)]
        try:
            rankings = self._pool.map(rank_chunk, [self._view] * len(chunks), chunks, [top_k] * len(chunks))
            return [ranking for chunk in rankings for ranking in chunk]
        except BrokenProcessPool as error:
            raise SearchIndexError(
                f"{self._view.index_dir}: a process of a batch died ({error}). Open the index anew; if it dies at once, see "
                "above for what it wrote: a script that searches a batch must do so under `if __name__ == '__main__':`."
            ) from error


def end_with_parent() -> None:
    """Begin a process of a pool with this: a parent that is killed cannot end its processes, which would wait for it for good."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def rank_chunk(view: IndexView, texts: Sequence[str], top_k: int) -> list[Ranking]:
    """Run in a process of the pool, which opens the index once.

    Raises:
        SearchIndexError: the index has been built anew since the searching process opened it, so rows mean other pages.
    """
    ranker = _open(view.index_dir, view.operator, view.syntax)
    if ranker.record != view.record:
        raise SearchIndexError(f"{view.index_dir}: built anew since it was opened. Open it again.")
    return [ranker.rank(text, top_k) for text in texts]


@cache
def _open(index_dir: Path, operator: Operator, syntax: Syntax) -> Ranker:
    return Ranker(index_dir, operator, syntax)
