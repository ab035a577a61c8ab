"""Results of policies in the order of a model that reads question and page, searched again for the replies that they gave."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from factories import asked_at, build_question, build_search, build_trajectory, build_turn
from small_index import index_texts

from drag_ray.baselines.feature_model import FeatureModel
from drag_ray.baselines.rerank import Rerank, RerankedConfig
from drag_ray.evaluate.policies.reranked_policies import AskedQuestion, ReadPages, list_pages, put_pages_in_order
from drag_ray.evaluate.policies.retriever_rescoring import SearchAsAsked
from drag_ray.evaluate.results import compute_result
from drag_ray.search.config import Factors
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hits

TEXTS = ["rotor speed limit", "rotor load and load", "fuel pump filter", "speed of the wing", "wing spar and oil rotor"]
QUESTION = build_question(id="q", question="rotor speed", evidence=(Evidence("a.pdf", 5),))


READ: list[tuple[str, list[Evidence]]] = []
"""Questions, and the pages that were read for each."""


@pytest.fixture(autouse=True)
def nothing_read() -> None:
    READ.clear()


@pytest.fixture
def searcher(tmp_path: Path) -> Searcher:
    return index_texts(tmp_path, TEXTS, "a.pdf")


def prefer_last(hits: Hits | None) -> list[float]:
    return [float(hit.page_number) for hit in hits or ()]


def read_by_length(asked: Sequence[AskedQuestion], search: SearchAsAsked) -> list[ReadPages]:
    """Keeps what it was given too."""
    assert isinstance(search.baseline, Rerank)
    read: list[ReadPages] = []
    for question, rollouts in asked:
        hits = search(rollouts)
        pages = list_pages(hits)
        READ.append((question, pages))
        scores = {page: float(len(TEXTS[page.page_number - 1])) for page in pages}
        read.append(ReadPages(hits, [search.baseline.features and prefer_last(found) for found in hits], scores))
    return read


def test_what_a_policy_finds_is_ordered_for_the_question_and_each_page_is_read_once(searcher: Searcher) -> None:
    turn = build_search("spar oil", evidence_rank=None, hits=())
    rollout = build_trajectory(turn, question=QUESTION, query_mode="expand", question_weight=2.0)
    rewritten = build_trajectory(turn, question=QUESTION, query_mode="rewrite")
    rollouts = {"question": [], "base": [rollout], "tuned": [rewritten]}
    added = put_pages_in_order(rollouts, ["base", "tuned"], Rerank(RerankedConfig(model="m")), searcher.index_dir, read_by_length)
    assert list(added) == ["base+rerank", "tuned+rerank"]
    [expanded], [whole] = added["base+rerank"], added["tuned+rerank"]
    assert [hit.page_number for hit in expanded.turns[0].ranking.hits] == [5, 2, 1, 4]
    assert [hit.rank for hit in expanded.turns[0].ranking.hits] == [1, 2, 3, 4]
    assert (expanded.turns[0].ranking.evidence_rank, expanded.turns[0].ranking.rank_score) == (1, 1.0)
    assert [hit.page_number for hit in whole.turns[0].ranking.hits] == [5]  # what it writes finds no other page
    [(question, pages)] = READ
    assert question == "rotor speed"
    assert sorted(page.page_number for page in pages) == [1, 2, 4, 5]


def test_no_more_pages_are_read_than_it_is_told_and_no_fewer_than_are_kept(searcher: Searcher) -> None:
    rollout = build_trajectory(build_search("oil"), question=QUESTION, query_mode="expand", question_weight=2.0, depth=3, top_k=1)
    [again] = put_pages_in_order(
        {"base": [rollout]}, ["base"], Rerank(RerankedConfig(depth=1)), searcher.index_dir, read_by_length
    )["base+rerank"]
    assert [len(pages) for _, pages in READ] == [3]
    assert len(again.turns[0].ranking.hits) == 3


def test_a_reply_that_cannot_be_read_leaves_it_at_the_question_in_its_order(searcher: Searcher) -> None:
    rollout = build_trajectory(build_turn(), question=QUESTION, query_mode="expand", **asked_at(None))
    [again] = put_pages_in_order({"base": [rollout]}, ["base"], Rerank(), searcher.index_dir, read_by_length)["base+rerank"]
    assert [hit.page_number for hit in again.question_search.hits] == [5, 2, 1, 4]
    assert compute_result(again).searches.first_search_rank == 1


def test_the_question_itself_is_put_in_order_as_what_policies_add_to_it_is(searcher: Searcher) -> None:
    asked = build_trajectory(build_search("rotor speed", evidence_rank=3), question=QUESTION, query_mode="rewrite")
    rollout = build_trajectory(build_search("oil"), question=QUESTION, query_mode="expand", question_weight=2.0)
    rollouts = {"question": [asked], "rerank": [asked], "base": [rollout]}
    added = put_pages_in_order(rollouts, ["base"], Rerank(RerankedConfig(model="m")), searcher.index_dir, read_by_length)
    assert sorted(added) == ["base+rerank", "rerank"]
    assert [hit.page_number for hit in added["rerank"][0].turns[0].ranking.hits] == [5, 2, 1, 4]
    assert len(READ) == 1  # with its pages and those of the policy


@pytest.mark.parametrize(
    ("weight", "expected"), [(None, [5, 2, 1, 4]), (0.5, [5, 4, 2, 1]), (0.7, [5, 2, 4, 1]), (1.0, [5, 2, 1, 4])]
)
def test_features_have_the_rest_of_the_weight_and_nothing_where_it_was_not_learned(
    weight: float | None, expected: list[int], searcher: Searcher
) -> None:
    rollout = build_trajectory(build_search("oil"), question=QUESTION, query_mode="expand", question_weight=2.0)
    reranker = Rerank(RerankedConfig(model="m", weight=weight), features=FeatureModel())
    [again] = put_pages_in_order({"base": [rollout]}, ["base"], reranker, searcher.index_dir, read_by_length)["base+rerank"]
    assert [hit.page_number for hit in again.turns[0].ranking.hits] == expected
    is_alone = weight in (None, 1)
    assert ("features counting" in reranker.describe()) == (not is_alone)
    assert (reranker.open_features(searcher) is None) == is_alone


def test_what_was_learned_is_what_features_and_the_model_count(searcher: Searcher) -> None:
    rollout = build_trajectory(build_search("oil"), question=QUESTION, query_mode="expand", question_weight=2.0)
    reranker = Rerank(RerankedConfig(model="m"), features=FeatureModel(with_model=Factors(10.0, 1.0)))
    [again] = put_pages_in_order({"base": [rollout]}, ["base"], reranker, searcher.index_dir, read_by_length)["base+rerank"]
    # Ten times the page number, and the length of the page.
    assert [(hit.page_number, hit.score) for hit in again.turns[0].ranking.hits] == [(5, 73.0), (4, 57.0), (2, 39.0), (1, 27.0)]
    assert "its scores times 1.00 added to those of features times 10.00" in reranker.describe()
    assert reranker.open_features(searcher)


def test_what_finds_nothing_is_not_read(searcher: Searcher) -> None:
    turn = build_search("zebra", evidence_rank=None, hits=())
    rollout = build_trajectory(turn, question=QUESTION, query_mode="rewrite")
    [again] = put_pages_in_order({"base": [rollout]}, ["base"], Rerank(), searcher.index_dir, read_by_length)["base+rerank"]
    [read] = READ
    assert read == (QUESTION.question, [])
    assert again.turns[0].ranking.hits == ()
