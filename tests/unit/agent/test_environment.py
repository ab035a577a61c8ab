"""The search of a rollout: what it returns, and that a slow one holds up nobody."""

import asyncio
import threading

import pytest
from small_index import open_index

from drag_ray.agent.environment import ExpandedQuestion, SearchEnvironment, SearchResult
from drag_ray.errors import SearchIndexError
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hit, Hits, Page

TEXTS = ["rotor rotor blade", "rotor speed limit in flight on the whole", "fuel and oil"]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    pages = [Page("a.pdf", number, len(TEXTS), text) for number, text in enumerate(TEXTS, start=1)]
    return open_index(tmp_path_factory.mktemp("environment"), pages)


class BlockedSearcher:
    """Answers `slow` only when `num_others` other searches have been answered, or after a long time, which it remembers."""

    def __init__(self, searcher: Searcher, num_others: int) -> None:
        self._searcher = searcher
        self._num_left = num_others
        self._others_are_through = threading.Event()
        self._lock = threading.Lock()
        self.gave_up = False

    def search(self, text: str, top_k: int) -> Hits:
        if text == "slow":
            self.gave_up = not self._others_are_through.wait(timeout=20)
        return self._searcher.search(text, top_k)

    def search_expanded(self, question: str, addition: str, question_weight: float, top_k: int, words: str = "") -> Hits:
        return self._searcher.search_expanded(question, addition, question_weight, top_k, words)

    def page(self, hit: Hit) -> Page:
        with self._lock:
            self._num_left -= 1
            if self._num_left == 0:
                self._others_are_through.set()
        return self._searcher.page(hit)


def test_the_policy_sees_top_k_pages_of_a_query_or_an_expanded_question_and_the_evaluation_more(searcher: Searcher) -> None:
    environment = SearchEnvironment(searcher, top_k=1, depth=10)
    result = asyncio.run(environment.search("rotor", (Evidence("a.pdf", 2),)))
    assert [hit.page_number for hit in result.ranking.hits] == [1, 2]
    assert [page.text for _, page in result.shown] == [TEXTS[0]]
    assert (result.ranking.evidence_rank, result.ranking.rank_score, result.error) == (2, 0.0, "")
    assert result.ranking.search_s > 0
    environment = SearchEnvironment(searcher, top_k=1, depth=10)
    evidence = (Evidence("a.pdf", 2),)
    alone = asyncio.run(environment.search_question("rotor", evidence))
    result = asyncio.run(environment.search(ExpandedQuestion("rotor", "limit^3", 2.0), evidence))
    assert result.ranking.hits == tuple(searcher.search_expanded("rotor", "limit^3", 2.0, 10))
    assert [page.text for _, page in result.shown] == [TEXTS[1]]
    assert (alone.ranking.evidence_rank, alone.ranking.rank_score) == (2, 0.0)
    assert (result.ranking.evidence_rank, result.ranking.rank_score, result.error) == (1, 1.0, "")


def test_searches_go_on_while_a_slow_one_waits(searcher: Searcher) -> None:
    """The slow search ends only after the others; were it run on the event loop, it would give up waiting for them."""
    blocked = BlockedSearcher(searcher, num_others=50)
    environment = SearchEnvironment(blocked, top_k=1, depth=10, num_kept=0)

    async def search_all() -> list[SearchResult]:
        slow = asyncio.create_task(environment.search("slow", ()))
        others = [await environment.search("rotor", ()) for _ in range(25)]
        others += await asyncio.gather(*(environment.search("fuel", ()) for _ in range(25)))
        return [*others, await slow]

    results = asyncio.run(search_all())
    assert not blocked.gave_up
    assert [len(result.ranking.hits) for result in results] == [2] * 25 + [1] * 25 + [0]


class CountingSearcher:
    """Notes what it is asked; waits for `go` first, and fails the first time that it is asked `broken`."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self.asked: list[str | tuple[str, str, float]] = []
        self.go = threading.Event()
        self.go.set()

    def search(self, text: str, top_k: int) -> Hits:
        self.asked.append(text)
        self.go.wait(timeout=20)
        if text == "broken" and self.asked.count(text) == 1:
            raise SearchIndexError("disk gone")
        return self._searcher.search(text, top_k)

    def search_expanded(self, question: str, addition: str, question_weight: float, top_k: int, words: str = "") -> Hits:
        self.asked.append((question, addition, question_weight))
        return self._searcher.search_expanded(question, addition, question_weight, top_k, words)

    def page(self, hit: Hit) -> Page:
        return self._searcher.page(hit)


def search_all(environment: SearchEnvironment, *queries: str) -> list[SearchResult]:
    async def search_each() -> list[SearchResult]:
        return [await environment.search(query, ()) for query in queries]

    return asyncio.run(search_each())


def test_equal_queries_are_searched_once_and_scored_for_each_question(searcher: Searcher) -> None:
    counting = CountingSearcher(searcher)
    environment = SearchEnvironment(counting, top_k=2, depth=10)
    pages = [(Evidence("a.pdf", 2),), (Evidence("a.pdf", 1),), ()]
    counting.go.clear()

    async def search_together() -> list[SearchResult]:
        together = [asyncio.create_task(environment.search("rotor", evidence)) for evidence in pages]
        await asyncio.sleep(0.05)
        counting.go.set()
        return [await task for task in together] + [await environment.search("rotor", pages[0])]

    results = asyncio.run(search_together())
    assert counting.asked == ["rotor"]
    assert environment.num_shared == 3
    assert [result.ranking.evidence_rank for result in results] == [2, 1, None, 2]
    assert len({(result.ranking.hits, result.shown) for result in results}) == 1


def test_the_latest_queries_are_kept_and_a_failed_one_is_asked_again(searcher: Searcher) -> None:
    counting = CountingSearcher(searcher)
    environment = SearchEnvironment(counting, top_k=1, depth=10, num_kept=2)
    search_all(environment, "rotor", "fuel", "rotor", "oil", "rotor", "fuel")
    assert counting.asked == ["rotor", "fuel", "oil", "fuel"]
    counting = CountingSearcher(searcher)
    failed, again, shared = search_all(SearchEnvironment(counting, 1, 10), "broken", "broken", "broken")
    assert (failed.error, again.error, shared.error) == ("disk gone", "", "")
    assert counting.asked == ["broken", "broken"]


def test_a_rollout_that_is_ended_does_not_end_the_search_of_others(searcher: Searcher) -> None:
    counting = CountingSearcher(searcher)
    environment = SearchEnvironment(counting, top_k=1, depth=10)
    counting.go.clear()

    async def search_and_cancel() -> SearchResult:
        first, second = (asyncio.create_task(environment.search("rotor", ())) for _ in range(2))
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.sleep(0)
        counting.go.set()
        return await second

    assert len(asyncio.run(search_and_cancel()).ranking.hits) == 2
    assert counting.asked == ["rotor"]


def test_a_question_is_searched_once_for_all_of_its_rollouts_and_is_no_shared_search(searcher: Searcher) -> None:
    counting = CountingSearcher(searcher)
    environment = SearchEnvironment(counting, top_k=1, depth=10)

    async def ask_all() -> None:
        for _ in range(3):
            await environment.search_question("rotor", ())
            await environment.search_question(ExpandedQuestion("rotor", "", 2.0), ())
        assert environment.num_shared == 0
        await environment.search("rotor", ())
        await environment.search(ExpandedQuestion("rotor", "", 2.0), ())
        await environment.search(ExpandedQuestion("rotor", "", 1.0), ())

    asyncio.run(ask_all())
    assert counting.asked == ["rotor", ("rotor", "", 2.0), ("rotor", "", 1.0)]
    assert environment.num_shared == 2


def test_queries_go_to_a_searcher_of_their_own_and_questions_to_the_index(searcher: Searcher) -> None:
    index, other = CountingSearcher(searcher), CountingSearcher(searcher)
    environment = SearchEnvironment(index, top_k=1, depth=10, searcher=other)

    async def ask_both() -> None:
        await environment.search("rotor", ())
        await environment.search_question("rotor", ())

    asyncio.run(ask_both())
    assert (index.asked, other.asked, environment.num_shared) == (["rotor"], ["rotor"], 0)
