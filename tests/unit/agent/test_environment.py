"""The search of a rollout: what it returns, and that a slow one holds up nobody."""

import asyncio
import threading

import pytest

from drag_ray import artifacts, schemas
from drag_ray.agent.environment import SearchEnvironment, SearchResult
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hit, Page

TEXTS = ["rotor rotor blade", "rotor speed limit in flight on the whole", "fuel and oil"]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    folder = tmp_path_factory.mktemp("environment")
    pages = [Page("a.pdf", number, len(TEXTS), text) for number, text in enumerate(TEXTS, start=1)]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "index", SearchConfig())
    return Searcher(folder / "index")


class BlockedSearcher:
    """Answers `slow` only when `num_others` other searches have been answered, or after a long time, which it remembers."""

    def __init__(self, searcher: Searcher, num_others: int) -> None:
        self._searcher = searcher
        self._num_left = num_others
        self._others_are_through = threading.Event()
        self._lock = threading.Lock()
        self.gave_up = False

    def search(self, text: str, top_k: int) -> list[Hit]:
        if text == "slow":
            self.gave_up = not self._others_are_through.wait(timeout=20)
        return self._searcher.search(text, top_k)

    def page(self, hit: Hit) -> Page:
        with self._lock:
            self._num_left -= 1
            if self._num_left == 0:
                self._others_are_through.set()
        return self._searcher.page(hit)


def test_the_policy_sees_top_k_pages_and_the_evaluation_more(searcher: Searcher) -> None:
    environment = SearchEnvironment(searcher, top_k=1, depth=10)
    result = asyncio.run(environment.search("rotor", (Evidence("a.pdf", 2),)))
    assert [hit.page_number for hit in result.hits] == [1, 2]
    assert [page.text for _, page in result.shown] == [TEXTS[0]]
    assert (result.evidence_rank, result.rank_score, result.error) == (2, 0.0, "")
    assert result.search_s > 0


def test_searches_go_on_while_a_slow_one_waits(searcher: Searcher) -> None:
    """The slow search ends only after the others; were it run on the event loop, it would give up waiting for them."""
    blocked = BlockedSearcher(searcher, num_others=50)
    environment = SearchEnvironment(blocked, top_k=1, depth=10)

    async def search_all() -> list[SearchResult]:
        slow = asyncio.create_task(environment.search("slow", ()))
        others = [await environment.search("rotor", ()) for _ in range(25)]
        others += await asyncio.gather(*(environment.search("fuel", ()) for _ in range(25)))
        return [*others, await slow]

    results = asyncio.run(search_all())
    assert not blocked.gave_up
    assert [len(result.hits) for result in results] == [2] * 25 + [1] * 25 + [0]
