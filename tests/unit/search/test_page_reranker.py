"""Rankings in the order of a score that is made by hand: how often a page says `fuel`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from drag_ray.search.page_reranker import PageRanker, put_in_order
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hit, Hits

TEXTS = ["rotor rotor rotor", "rotor rotor of steel", "rotor fuel and more", "rotor fuel fuel and more of it", "wing"]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory, write_index: Callable[..., Path]) -> Searcher:
    return Searcher(write_index(tmp_path_factory.mktemp("rerank"), TEXTS))


def count_fuel(question: str, texts: Sequence[str]) -> list[float]:
    assert question == "rotor"
    return [float(text.count("fuel")) for text in texts]


def test_the_order_is_that_of_the_score_then_of_the_ranking_and_what_was_not_found_is_not_read(searcher: Searcher) -> None:
    ranking = Hits(searcher.search("rotor", 4), is_partial=True)
    assert [hit.file for hit in ranking] == [f"file{number:02}.pdf" for number in (0, 1, 2, 3)]
    ordered = PageRanker(searcher, count_fuel).rerank("rotor", ranking, 3)
    assert [(hit.file, hit.rank, hit.score) for hit in ordered] == [
        ("file03.pdf", 1, 2.0),
        ("file02.pdf", 2, 1.0),
        ("file00.pdf", 3, 0.0),
    ]
    assert ordered.is_partial
    ranker = PageRanker(searcher, count_fuel)
    assert [hit.file for hit in ranker.rerank("rotor", searcher.search("rotor", 2), 2)] == ["file00.pdf", "file01.pdf"]
    assert ranker.rerank("rotor", Hits([]), 2) == []


def test_below_a_weight_of_one_the_search_has_its_share_in_the_order() -> None:
    hits = Hits([Hit("a.pdf", number, number, score) for number, score in enumerate((9.0, 6.0, 3.0), 1)])
    scores = {hit.page: score for hit, score in zip(hits, (1.0, 3.0, 2.0), strict=True)}

    def order(weight: float) -> list[int]:
        return [hit.page_number for hit in put_in_order(hits, scores, 3, weight)]

    assert [order(weight) for weight in (1.0, 0.5, 0.0)] == [[2, 3, 1], [2, 1, 3], [1, 2, 3]]
    first = put_in_order(hits, scores, 1, 0.5)[0]
    assert first.score == pytest.approx(0.5 * 1.5**0.5)  # one deviation above the mean of three, and the mean of the search
    assert [hit.page_number for hit in put_in_order(hits, dict.fromkeys(scores, 1.0), 3, 0.5)] == [1, 2, 3]
    assert put_in_order(Hits(), {}, 3, 0.5) == []
    assert [hit.page_number for hit in put_in_order(hits, scores, 3, 0.25, [1.0, 2.0, 9.0])] == [3, 2, 1]


def test_features_have_the_rest_of_the_weight_or_put_pages_in_order_alone(searcher: Searcher) -> None:
    hits = searcher.search("rotor", 4)

    def prefer_second(question: str, found: Hits) -> list[float]:
        assert (question, found) == ("rotor", hits)
        return [0.0, 9.0, 0.0, 0.0]

    alone = PageRanker(searcher, features=prefer_second).rerank("rotor", hits, 4)
    assert [(hit.file, hit.score) for hit in alone[:2]] == [("file01.pdf", 9.0), ("file00.pdf", 0.0)]
    both = PageRanker(searcher, count_fuel, weight=0.5, features=prefer_second).rerank("rotor", hits, 4)
    expected = put_in_order(hits, dict(zip([hit.page for hit in hits], (0.0, 0.0, 1.0, 2.0), strict=True)), 4, 0.5, [0, 9, 0, 0])
    assert both == expected
    assert [hit.file for hit in both][:2] == ["file03.pdf", "file01.pdf"]


def test_of_a_long_page_so_much_is_read_and_of_a_short_one_all(searcher: Searcher) -> None:
    read: list[str] = []

    def score(_: str, texts: Sequence[str]) -> list[float]:
        read.extend(texts)
        return [0.0] * len(texts)

    PageRanker(searcher, score, 20).rerank("more fuel", searcher.search("fuel rotor", 4), 4)
    assert sorted(read) == ["rotor\nfuel and more", "rotor fuel and more", "rotor rotor of steel", "rotor rotor rotor"]


def test_what_is_found_is_read_once_for_a_question(searcher: Searcher) -> None:
    read: list[str] = []

    def score(question: str, texts: Sequence[str]) -> list[float]:
        read.extend(texts)
        return count_fuel(question, texts)

    ranker, known = PageRanker(searcher, score), dict[Evidence, float]()
    for query, top_k, expected in (("rotor", 2, [0, 1]), ("rotor", 3, [2, 0, 1]), ("fuel", 2, [3, 2]), ("zebra", 2, [])):
        found = ranker.rerank("rotor", searcher.search(query, top_k), top_k, known)
        assert [hit.file for hit in found] == [f"file{number:02}.pdf" for number in expected]
    assert len(known) == len(read) == len(set(read)) == 4
