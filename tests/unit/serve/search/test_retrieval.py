"""The ways in which /v1/search finds pages, with tiny models of random weights."""

import asyncio
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from embedding_models import write_cross_encoder, write_embedding_model, write_page_vectors
from serve_cases import OWN, TRAINED, Serve

from drag_ray.baselines.feature_model import FeatureModel, write_features
from drag_ray.baselines.page_features import FeatureScorer
from drag_ray.engine.encoders.reranker import load_reranker
from drag_ray.errors import ConfigError, SearchIndexError, ServeError
from drag_ray.search.config import Factors
from drag_ray.search.dense import DenseSearcher, HybridSearcher
from drag_ray.search.page_reranker import PageRanker
from drag_ray.search.searcher import Searcher
from drag_ray.serve.config import ServedRerankConfig
from drag_ray.serve.search.messages import SearchRequest
from drag_ray.serve.search.retrieval import Retrieval, open_retrieval

QUESTION = "How fast may the rotor turn?"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_embedding_model(folder / "embedding")
    write_cross_encoder(folder / "cross_encoder")
    return folder


@pytest.fixture(scope="module")
def vectors_dir(models: Path, searcher: Searcher) -> Path:
    write_page_vectors(searcher, models / "embedding", models / "vectors")
    return models / "vectors"


@pytest.fixture(scope="module")
def rerank_config(models: Path) -> ServedRerankConfig:
    return ServedRerankConfig(model=str(models / "cross_encoder"), depth=3)


def list_pages(answer: Any) -> list[tuple[int, str, float]]:
    return [(page["rank"], page["file"], page["score"]) for page in answer["pages"]]


def test_pages_are_found_by_words_by_vectors_and_by_both(serve: Serve, searcher: Searcher, vectors_dir: Path) -> None:
    retrieval = open_retrieval(searcher, vectors_dir, "hybrid", ServedRerankConfig())
    dense: Any = retrieval.choose("dense")
    served = serve(lambda request: "<search>speed^2</search>", retrieval=retrieval)
    asked = (QUESTION, "speed^2", TRAINED.agent.question_weight, 3)
    for name, index in (("bm25", searcher), ("dense", dense), ("hybrid", HybridSearcher(searcher, dense))):
        answer = served.post("/v1/search", question=QUESTION, top_k=3, retrieval=name).json()
        assert list_pages(answer) == [(hit.rank, hit.file, hit.score) for hit in index.search_expanded(*asked)]
        assert (answer["retrieval"], answer["reranked"], answer["query"]) == (name, False, "speed^2")
    assert isinstance(dense, DenseSearcher)
    weighing: Any = retrieval.choose("hybrid", 0.8)
    assert weighing.search(QUESTION, 3) == HybridSearcher(searcher, dense, dense_weight=0.8).search(QUESTION, 3)
    default = served.post("/v1/search", question=QUESTION, top_k=3).json()
    assert default == answer
    rewritten = served.post("/v1/search", question=QUESTION, model="base", retrieval="dense").json()
    assert list_pages(rewritten) == [(hit.rank, hit.file, hit.score) for hit in dense.search("speed^2", OWN.agent.depth)]


def test_the_pages_are_ordered_anew_by_the_question_wherever_a_model_is_named(
    serve: Serve, searcher: Searcher, vectors_dir: Path, rerank_config: ServedRerankConfig
) -> None:
    retrieval = open_retrieval(searcher, vectors_dir, "bm25", rerank_config)
    served = serve(lambda request: "<search>rotor oil</search>", retrieval=retrieval)
    found = searcher.search("rotor oil", 3)
    expected = PageRanker(searcher, load_reranker(rerank_config).score).rerank(QUESTION, found, 3)
    answer = served.post("/v1/search", question=QUESTION, model="base", top_k=2).json()
    assert answer["reranked"]
    assert list_pages(answer) == [(hit.rank, hit.file, pytest.approx(hit.score)) for hit in expected[:2]]
    assert [hit.file for hit in expected] != [hit.file for hit in found]
    as_found = served.post("/v1/search", question=QUESTION, model="base", top_k=2, rerank=False).json()
    assert not as_found["reranked"]
    assert list_pages(as_found) == [(hit.rank, hit.file, hit.score) for hit in found[:2]]


def test_what_the_endpoint_cannot_do_is_refused(serve: Serve) -> None:
    served = serve(lambda request: "<search>fuel</search>")
    for body, reason in (
        ({"retrieval": "dense"}, "has no vectors"),
        ({"rerank": True}, r"--serve\.rerank\.model"),
        ({"retrieval": "nobody"}, "retrieval: "),
    ):
        response = served.post("/v1/search", question=QUESTION, **body)
        assert response.status_code == 400
        assert reason.replace("\\", "") in response.json()["error"]["message"]
        assert served.post("/v1/ask", question=QUESTION, **body).json() == response.json()


def test_vectors_whose_model_is_gone_stop_only_who_needs_them(
    searcher: Searcher, models: Path, vectors_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(vectors_dir, tmp_path / "vectors")
    moved = models / "embedding"
    moved.rename(models / "moved")
    try:
        with pytest.raises(ConfigError, match=r"embedding\.model"):
            open_retrieval(searcher, vectors_dir, "dense", ServedRerankConfig())
        retrieval = open_retrieval(searcher, vectors_dir, "bm25", ServedRerankConfig())
    finally:
        (models / "moved").rename(moved)
    assert "pages are searched by words only" in caplog.text
    with pytest.raises(ServeError, match="their model is gone"):
        retrieval.choose("hybrid")
    with pytest.raises(SearchIndexError, match="no vectors of pages"):
        open_retrieval(searcher, tmp_path / "nowhere", "hybrid", ServedRerankConfig())
    assert Retrieval(searcher).choose("bm25") is searcher


def test_pages_are_in_the_order_of_features_alone_or_beside_a_model(
    serve: Serve, searcher: Searcher, vectors_dir: Path, rerank_config: ServedRerankConfig, tmp_path: Path
) -> None:
    factors = Factors(2.0, 0.5)
    model = FeatureModel(frozenset(), (), (0.0,) * 9, (1.0,) * 9, (1.0, *[0.0] * 8), with_model=factors)
    write_features(tmp_path, model)  # the higher its rank, the better is a page
    found, features = searcher.search("rotor oil", 3), FeatureScorer(model, searcher)
    both = PageRanker(searcher, load_reranker(rerank_config).score, weight=factors, features=features).rerank(QUESTION, found, 3)
    for config, expected in (
        (ServedRerankConfig(features=tmp_path), [hit.file for hit in found][::-1]),
        (rerank_config.model_copy(update={"features": tmp_path}), [hit.file for hit in both]),
    ):
        retrieval = open_retrieval(searcher, vectors_dir, "bm25", config)
        served = serve(lambda request: "<search>rotor oil</search>", retrieval=retrieval)
        answer = served.post("/v1/search", question=QUESTION, model="base", top_k=3).json()
        assert answer["reranked"]
        assert [page["file"] for page in answer["pages"]] == expected


def test_an_agent_is_shown_what_is_found_by_vectors_and_in_the_order_of_the_model(
    serve: Serve, searcher: Searcher, vectors_dir: Path, rerank_config: ServedRerankConfig
) -> None:
    retrieval = open_retrieval(searcher, vectors_dir, "hybrid", rerank_config)
    replies = iter(["<search>rotor oil</search>", "<answer>340 rpm</answer>"] * 3)
    served = serve(lambda request: next(replies), retrieval=retrieval)
    score = load_reranker(rerank_config).score
    for body, name, reranked in (
        ({"retrieval": "dense", "rerank": False}, "dense", False),
        ({"retrieval": "bm25"}, "bm25", True),
        ({}, "hybrid", True),
    ):
        answer = served.post("/v1/ask", question=QUESTION, model="base", **body).json()
        found: Any = retrieval.choose(name).search("rotor oil", 3)  # pyright: ignore[reportArgumentType]
        expected = PageRanker(searcher, score).rerank(QUESTION, found, 3) if reranked else found
        assert (answer["retrieval"], answer["reranked"]) == (name, reranked)
        assert list_pages(answer["turns"][0]) == [(hit.rank, hit.file, pytest.approx(hit.score)) for hit in expected[:1]]
        shown = served.engine.requests[-1].messages[-1]["content"]
        assert f"[1] {expected[0].file}#{expected[0].page_number}\n" in shown


def test_a_page_is_read_once_however_often_the_agent_finds_it(searcher: Searcher) -> None:
    read: list[str] = []

    def score(question: str, texts: Sequence[str]) -> list[float]:
        read.extend(texts)
        return [-float(len(text)) for text in texts]

    index = Retrieval(searcher, ranker=PageRanker(searcher, score), rerank_depth=3).order_by_question(searcher, QUESTION, 3)
    first = index.search("rotor", 2)
    assert [hit.rank for hit in first] == [1, 2]
    assert [hit.file for hit in first] == ["a.pdf", "b.pdf"]
    again = index.search_expanded(QUESTION, "oil", 1.0, 3)
    assert [hit.file for hit in again] == ["c.pdf", "a.pdf", "b.pdf"]
    assert len(read) == len(set(read)) == 3


def test_a_model_that_reads_pages_holds_up_no_other_request(serve: Serve, searcher: Searcher) -> None:
    begun, free = threading.Event(), threading.Event()

    def score(_: str, texts: Sequence[str]) -> list[float]:
        begun.set()
        assert free.wait(20), "the event loop is held up"
        return [float(len(text)) for text in texts]

    service = serve(lambda _: "rotor", retrieval=Retrieval(searcher, ranker=PageRanker(searcher, score), rerank_depth=3)).service
    assert service

    async def search_meanwhile() -> bool:
        reading = asyncio.create_task(service.search(SearchRequest(question=QUESTION, model="base")))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        await service.search(SearchRequest(question=QUESTION, model="base", rerank=False))
        free.set()
        return (await reading).reranked

    assert asyncio.run(search_meanwhile())
