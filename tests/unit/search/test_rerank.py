"""Rankings in the order of a score that is made by hand: how often a page says `fuel`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from drag_ray.search.rerank import remember, rerank
from drag_ray.search.searcher import Searcher

TEXTS = ["rotor rotor rotor", "rotor rotor of steel", "rotor fuel and more", "rotor fuel fuel and more of it", "wing"]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory, write_index: Callable[..., Path]) -> Searcher:
    return Searcher(write_index(tmp_path_factory.mktemp("rerank"), TEXTS))


def count_fuel(question: str, texts: Sequence[str]) -> list[float]:
    assert question == "rotor"
    return [float(text.count("fuel")) for text in texts]


def test_the_order_is_that_of_the_score_and_of_the_ranking_where_it_is_even(searcher: Searcher) -> None:
    ranking = searcher.search("rotor", 4)
    assert [hit.file for hit in ranking] == [f"file{number:02}.pdf" for number in (0, 1, 2, 3)]
    assert [(hit.file, hit.rank, hit.score) for hit in rerank("rotor", ranking, searcher, count_fuel)] == [
        ("file03.pdf", 1, 2.0),
        ("file02.pdf", 2, 1.0),
        ("file00.pdf", 3, 0.0),
        ("file01.pdf", 4, 0.0),
    ]


def test_what_was_not_found_is_not_read(searcher: Searcher) -> None:
    found = rerank("rotor", searcher.search("rotor", 2), searcher, count_fuel)
    assert [hit.file for hit in found] == ["file00.pdf", "file01.pdf"]
    assert rerank("rotor", [], searcher, count_fuel) == []


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
