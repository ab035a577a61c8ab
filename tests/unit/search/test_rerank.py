"""Rankings in the order of a score that is made by hand: how often a page says `fuel`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from drag_ray.errors import SearchIndexError
from drag_ray.search.rerank import RerankingSearcher, remember, rerank
from drag_ray.search.searcher import Searcher
from drag_ray.types import Hits

TEXTS = ["rotor rotor rotor", "rotor rotor of steel", "rotor fuel and more", "rotor fuel fuel and more of it", "wing"]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory, write_index: Callable[..., Path]) -> Searcher:
    return Searcher(write_index(tmp_path_factory.mktemp("rerank"), TEXTS))


def count_fuel(question: str, texts: Sequence[str]) -> list[float]:
    assert question == "rotor"
    return [float(text.count("fuel")) for text in texts]


def test_the_order_is_that_of_the_score_and_of_bm25_where_it_is_even(searcher: Searcher) -> None:
    found = RerankingSearcher(searcher, searcher, count_fuel, depth=4).search("rotor", 3)
    assert [hit.file for hit in searcher.search("rotor", 4)] == [f"file{number:02}.pdf" for number in (0, 1, 2, 3)]
    assert [(hit.file, hit.rank, hit.score) for hit in found] == [
        ("file03.pdf", 1, 2.0),
        ("file02.pdf", 2, 1.0),
        ("file00.pdf", 3, 0.0),
    ]


def test_what_lies_deeper_is_not_read_unless_it_is_wanted(searcher: Searcher) -> None:
    reranking = RerankingSearcher(searcher, searcher, count_fuel, depth=2)
    assert [hit.file for hit in reranking.search("rotor", 1)] == ["file00.pdf"]
    assert reranking.search("rotor", 4)[0].file == "file03.pdf"


def test_pages_are_those_of_the_index_and_nothing_found_stays_nothing(searcher: Searcher) -> None:
    reranking = RerankingSearcher(searcher, searcher, count_fuel, depth=4)
    assert reranking.page(reranking.search("rotor", 1)[0]).text == TEXTS[3]
    assert rerank("rotor", [], searcher, count_fuel) == []
    with pytest.raises(SearchIndexError, match="top_k 0"):
        reranking.search("rotor", 0)


def test_what_another_search_finds_is_what_is_ordered(searcher: Searcher) -> None:
    class Backwards:
        """The last pages first."""

        def search(self, text: str, top_k: int) -> Hits:
            return Hits(list(reversed(searcher.search(text, 4)))[:top_k], is_partial=True)

    found = RerankingSearcher(Backwards(), searcher, count_fuel, depth=2).search("rotor", 2)
    assert [hit.file for hit in found] == ["file03.pdf", "file02.pdf"]
    assert found.is_partial


def test_a_page_is_read_once_for_a_question_and_again_for_another() -> None:
    read: list[tuple[str, list[str]]] = []

    def score(question: str, texts: Sequence[str]) -> list[float]:
        read.append((question, list(texts)))
        return [float(len(text)) for text in texts]

    remembered = remember(score)
    assert remembered("rotor", ["a", "bb", "a"]) == [1.0, 2.0, 1.0]
    assert remembered("rotor", ["bb", "ccc"]) == [2.0, 3.0]
    assert remembered("rotor", ["a"]) == [1.0]
    assert remembered("wing", ["a"]) == [1.0]
    assert read == [("rotor", ["a", "bb"]), ("rotor", ["ccc"]), ("wing", ["a"])]
