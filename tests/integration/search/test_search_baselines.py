"""The BM25 figures that the public sets come with, found again with this project's search and baselines."""

import tempfile
from functools import cache
from pathlib import Path

import bench_search_quality as quality  # what is published is what is tested
import pytest
from public_sets import DATA_DIR

pytestmark = [pytest.mark.shared, pytest.mark.skipif(not DATA_DIR.is_dir(), reason=f"the public sets are not at {DATA_DIR}")]


measure_retrieval_set = cache(quality.measure_retrieval_set)


@pytest.mark.parametrize("name", ["cranfield", "cisi", "scifact_train"])
def test_ndcg_is_that_of_bm25s_and_of_the_published_baseline(name: str) -> None:
    measured = measure_retrieval_set(name, DATA_DIR)
    assert abs(measured["difference_to_bm25s"]) < 0.01
    assert abs(measured["difference_to_published"]) < 0.01


@pytest.mark.parametrize("name", ["wiki_pdf", "squad_v1_dev"])
def test_the_raw_question_finds_its_page_as_often_as_published_and_as_bm25s_does(name: str) -> None:
    measured = quality.measure_page_set(name, DATA_DIR)
    assert all(abs(difference) < 0.01 for difference in measured["difference_to_published"].values()), measured
    assert abs(measured["difference_to_bm25s"]["mrr@10"]) < 0.01


def test_expansion_helps_where_many_documents_answer_and_harms_where_one_does() -> None:
    many, one = (measure_retrieval_set(name, DATA_DIR) for name in ("cisi", "scifact_train"))
    assert many["rm3"]["ndcg@10"] > many["drag_ray"]["ndcg@10"] + 0.01
    assert one["rm3"]["ndcg@10"] < one["drag_ray"]["ndcg@10"] - 0.01


def test_no_page_is_lost_on_the_way_into_the_index() -> None:
    page_set = quality.read_page_set(DATA_DIR / "wiki_pdf")
    with tempfile.TemporaryDirectory() as scratch:
        searcher = quality.build_searcher(page_set.pages, Path(scratch))
        assert searcher.num_pages == len(page_set.pages) == 153
    assert len(page_set.questions) == 63
