"""RM3, beside a calculation by hand."""

import pytest
from small_index import index_texts

from drag_ray.baselines import rm3
from drag_ray.baselines.rm3 import RelevanceModel
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


def test_the_expanded_query_is_the_one_that_the_papers_define(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_NUM_PAGES": 2, "_NUM_TERMS": 3, "_QUESTION_SHARE": 0.4, "_MAX_PAGE_SHARE": 1}.items():
        monkeypatch.setattr(rm3, name, value)
    first, second = (hit.score for hit in searcher.search("kidney treatment", 2))
    relevance = {
        "kidney": first * 2 / 4 + second * 1 / 4,
        "pain": first * 1 / 4 + second * 2 / 4,
        "stone": first * 1 / 4,
        "nausea": second * 1 / 4,
    }
    assert relevance["stone"] > relevance["nausea"]
    total = relevance["kidney"] + relevance["pain"] + relevance["stone"]
    expanded = RelevanceModel(searcher).expand("kidney treatment")
    assert expanded == pytest.approx(
        {
            "kidney": 0.4 / 2 + 0.6 * relevance["kidney"] / total,
            "treatment": 0.4 / 2,
            "pain": 0.6 * relevance["pain"] / total,
            "stone": 0.6 * relevance["stone"] / total,
        }
    )
    assert sum(expanded.values()) == pytest.approx(1)


@pytest.mark.parametrize(("share", "terms"), [(0.4, {"kidney", "stone", "pain", "nausea"}), (0.2, {"kidney", "stone"})])
def test_terms_of_many_pages_do_not_join(
    share: float, terms: set[str], searcher: Searcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rm3, "_MAX_PAGE_SHARE", share)
    assert set(RelevanceModel(searcher).expand("kidney")) == terms


def test_a_question_that_finds_nothing_stays_as_it_is(searcher: Searcher) -> None:
    assert RelevanceModel(searcher).expand("unheard words") == {"unheard": 0.5, "words": 0.5}
    assert RelevanceModel(searcher).expand("?!") == {}
