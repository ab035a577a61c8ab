"""Weighted queries as text, and what they find."""

import math

import pytest
from small_index import index_texts

from drag_ray.baselines.weights import WeightedSearcher, read_weights, write_weights
from drag_ray.errors import SearchIndexError
from drag_ray.search.searcher import Searcher

TEXTS = ["rotor rotor speed", "rotor blade", "fuel pump and fuel tank", "fuel speed", "weather report of the day"]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    return index_texts(tmp_path_factory.mktemp("weights"), TEXTS)


def test_weights_survive_their_text_heaviest_first() -> None:
    weights = {"stone": 0.25, "kidney": 0.5, "acut": 0.25, "2": 1e-07}
    assert write_weights(weights) == "kidney^0.5 acut^0.25 stone^0.25 2^1e-07"
    assert read_weights(write_weights(weights)) == weights
    assert read_weights("") == {}


@pytest.mark.parametrize("query", ["rotor speed", "rotor^fast", "rotor^ ^1", "rotor^nan", "rotor^inf", "rotor^-1"])
def test_a_part_without_a_weight_is_an_error_that_names_it(query: str) -> None:
    with pytest.raises(SearchIndexError, match=r"expected term\^weight"):
        read_weights(query)


def test_a_score_is_the_weighted_sum_of_the_terms_scores(searcher: Searcher) -> None:
    alone = {term: {hit.page_number: hit.score for hit in searcher.search(term, 10)} for term in ("rotor", "speed", "fuel")}
    weights = {"rotor": 0.2, "speed": 3.0, "fuel": 1.5}
    found = searcher.search_terms(weights, 10)
    for hit in found:
        expected = sum(weight * alone[term].get(hit.page_number, 0.0) for term, weight in weights.items())
        assert math.isclose(hit.score, expected, rel_tol=1e-5)
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    assert {hit.page_number for hit in found} == {1, 2, 3, 4}


def test_equal_weights_rank_as_the_plain_query(searcher: Searcher) -> None:
    text = "fuel speed rotor"
    plain = searcher.search(text, 10)
    weighted = WeightedSearcher(searcher).search("fuel^1 speed^1 rotor^1", 10)
    assert [(hit.page_number, hit.score) for hit in weighted] == [(hit.page_number, pytest.approx(hit.score)) for hit in plain]
    assert WeightedSearcher(searcher).page(weighted[0]).text == searcher.page(plain[0]).text


def test_terms_are_not_analysed_again_and_no_terms_find_nothing(searcher: Searcher) -> None:
    assert searcher.search_terms({"Rotor": 1.0, "the": 1.0}, 10) == []
    assert searcher.search_terms({}, 10) == []
    with pytest.raises(SearchIndexError, match="at least 1"):
        searcher.search_terms({"rotor": 1.0}, 0)
