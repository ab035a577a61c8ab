"""Rankings in the order of a score that is made by hand: how often a page says `fuel`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from drag_ray.search.rerank import PageRanker, PageTexts, QuestionRanker
from drag_ray.search.searcher import Searcher

TEXTS = ["rotor rotor rotor", "rotor rotor of steel", "rotor fuel and more", "rotor fuel fuel and more of it", "wing"]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory, write_index: Callable[..., Path]) -> Searcher:
    return Searcher(write_index(tmp_path_factory.mktemp("rerank"), TEXTS))


def count_fuel(question: str, texts: Sequence[str]) -> list[float]:
    assert question == "rotor"
    return [float(text.count("fuel")) for text in texts]


def test_the_order_is_that_of_the_score_then_of_the_ranking_and_what_was_not_found_is_not_read(searcher: Searcher) -> None:
    ranking = searcher.search("rotor", 4)
    assert [hit.file for hit in ranking] == [f"file{number:02}.pdf" for number in (0, 1, 2, 3)]
    assert [(hit.file, hit.rank, hit.score) for hit in PageRanker(PageTexts(searcher), count_fuel).rerank("rotor", ranking)] == [
        ("file03.pdf", 1, 2.0),
        ("file02.pdf", 2, 1.0),
        ("file00.pdf", 3, 0.0),
        ("file01.pdf", 4, 0.0),
    ]
    ranker = PageRanker(PageTexts(searcher), count_fuel)
    assert [hit.file for hit in ranker.rerank("rotor", searcher.search("rotor", 2))] == ["file00.pdf", "file01.pdf"]
    assert ranker.rerank("rotor", []) == []


def test_of_a_long_page_so_much_is_read_and_of_a_short_one_all(searcher: Searcher) -> None:
    read: list[str] = []

    def score(_: str, texts: Sequence[str]) -> list[float]:
        read.extend(texts)
        return [0.0] * len(texts)

    pages = searcher.search("fuel rotor", 4)
    PageRanker(PageTexts(searcher, 20), score).score("more fuel", pages)
    assert sorted(read) == ["rotor\nfuel and more", "rotor fuel and more", "rotor rotor of steel", "rotor rotor rotor"]


def test_a_page_is_read_once_for_a_question(searcher: Searcher) -> None:
    read: list[str] = []

    def score(question: str, texts: Sequence[str]) -> list[float]:
        read.extend(texts)
        return count_fuel(question, texts)

    ranker = QuestionRanker(PageRanker(PageTexts(searcher), score), "rotor")
    assert [hit.file for hit in ranker.rerank(searcher.search("rotor", 2))] == ["file00.pdf", "file01.pdf"]
    assert [hit.file for hit in ranker.rerank(searcher.search("rotor", 3))] == ["file02.pdf", "file00.pdf", "file01.pdf"]
    assert [hit.file for hit in ranker.rerank(searcher.search("fuel", 2))] == ["file03.pdf", "file02.pdf"]
    assert ranker.num_read == len(read) == len(set(read)) == 4
    assert ranker.rerank([]) == []
