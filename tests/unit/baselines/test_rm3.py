"""RM3, beside a calculation by hand."""

import pytest
from small_index import index_texts

from drag_ray.baselines.rm3 import RelevanceModel, Rm3Config
from drag_ray.search.searcher import Searcher

TEXTS = [
    "kidney stone kidney pain",
    "kidney pain pain nausea",
    "rotor speed limit",
    "fuel pump limit",
    "nausea after a flight",
]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    return index_texts(tmp_path_factory.mktemp("rm3"), TEXTS, analyzer="plain")


def test_the_expanded_query_is_the_one_that_the_papers_define(searcher: Searcher) -> None:
    config = Rm3Config(fb_docs=2, fb_terms=3, original_query_weight=0.4, max_doc_share=1)
    first, second = (hit.score for hit in searcher.search("kidney treatment", 2))
    relevance = {
        "kidney": first * 2 / 4 + second * 1 / 4,
        "pain": first * 1 / 4 + second * 2 / 4,
        "stone": first * 1 / 4,
        "nausea": second * 1 / 4,
    }
    assert relevance["stone"] > relevance["nausea"]
    total = relevance["kidney"] + relevance["pain"] + relevance["stone"]
    expanded = RelevanceModel(searcher, config).expand("kidney treatment")
    assert expanded == pytest.approx(
        {
            "kidney": 0.4 / 2 + 0.6 * relevance["kidney"] / total,
            "treatment": 0.4 / 2,
            "pain": 0.6 * relevance["pain"] / total,
            "stone": 0.6 * relevance["stone"] / total,
        }
    )
    assert sum(expanded.values()) == pytest.approx(1)


def test_the_question_alone_ranks_as_the_question_does(searcher: Searcher) -> None:
    weights = RelevanceModel(searcher, Rm3Config(original_query_weight=1)).expand("kidney nausea limit")
    assert weights == pytest.approx({"kidney": 1 / 3, "nausea": 1 / 3, "limit": 1 / 3})
    plain = searcher.search("kidney nausea limit", 5)
    assert [hit.page_number for hit in searcher.search_terms(weights, 5)] == [hit.page_number for hit in plain]


def test_terms_of_many_pages_do_not_join(searcher: Searcher) -> None:
    assert "pain" in RelevanceModel(searcher, Rm3Config(max_doc_share=0.4)).expand("kidney")
    assert set(RelevanceModel(searcher, Rm3Config(max_doc_share=0.2)).expand("kidney")) == {"kidney", "stone"}


def test_expansion_finds_a_page_that_the_question_does_not(searcher: Searcher) -> None:
    assert 5 not in {hit.page_number for hit in searcher.search("kidney", 5)}
    weights = RelevanceModel(searcher, Rm3Config(max_doc_share=0.4)).expand("kidney")
    assert 5 in {hit.page_number for hit in searcher.search_terms(weights, 5)}


def test_a_question_that_finds_nothing_stays_as_it_is(searcher: Searcher) -> None:
    assert RelevanceModel(searcher, Rm3Config()).expand("unheard words") == {"unheard": 0.5, "words": 0.5}
    assert RelevanceModel(searcher, Rm3Config()).expand("?!") == {}
