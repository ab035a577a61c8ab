"""Pages read with their questions by a model in Ray's actors."""

from pathlib import Path

import pytest
from factories import build_page, build_question, build_search, build_trajectory
from nano_training import make_nano_model
from small_index import write_index

from drag_ray.baselines.feature_model import FeatureModel
from drag_ray.baselines.page_features import FeatureScorer
from drag_ray.baselines.rerank import Rerank, RerankedConfig
from drag_ray.cluster import tasks
from drag_ray.engine.encoders.reranker import load_reranker
from drag_ray.errors import ConfigError
from drag_ray.evaluate.policies.reranked_policies import AskedQuestion, list_pages, read_pages
from drag_ray.evaluate.policies.retriever_rescoring import SearchAsAsked
from drag_ray.search.searcher import Searcher
from drag_ray.types import Trajectory

TEXTS = ["The rotor turns at 340 rpm.", "The fuel pump has a filter.", "Oil is changed once a year."]
pytestmark = pytest.mark.usefixtures("local_ray")
WORDS = ["", "rotor", "fuel oil", "rotor pump year"]


def build_rollout(question: str, query: str) -> Trajectory:
    return build_trajectory(build_search(query), question=build_question(question=question), query_mode="rewrite")


@pytest.mark.parametrize("apart", [False, True])
def test_each_page_has_the_score_that_the_model_gives_it_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    write_index(tmp_path, [build_page(file="a.pdf", page_number=number, text=text) for number, text in enumerate(TEXTS, 1)], [])
    nano_model = make_nano_model(tmp_path / "nano", hidden_size=32)
    config = RerankedConfig(model=str(nano_model), device="cpu")
    asked = [
        AskedQuestion(question, tuple(build_rollout(question, query) for query in (WORDS[number % 4], "nothing", "oil")))
        for number in range(5)
        for question in [f"How fast may rotor {number} turn?"]
    ]
    features = FeatureModel(means=(0.0,) * 9, deviations=(1.0,) * 9, weights=(1.0,) * 9)
    baseline = Rerank(config, features=features)
    search = SearchAsAsked(baseline, tmp_path / "search_index")
    if apart:  # as on GPUs, where what is read is found and written in other processes
        monkeypatch.setattr(tasks, "_plan_processes", lambda device, folder: (1, {"num_gpus": 0, "label_selector": {}}))
    read = read_pages(asked, search, baseline, tmp_path)
    reranker, score_hits = load_reranker(config), FeatureScorer(features, Searcher(tmp_path / "search_index"))
    for one, found in zip(asked, read, strict=True):
        assert found.hits == search(one.rollouts)
        assert found.features == [score_hits(one.question, hits) if hits else None for hits in found.hits]
        pages = list_pages(found.hits)
        expected = reranker.score(one.question, [TEXTS[page.page_number - 1] for page in pages])
        assert [found.scores[page] for page in pages] == pytest.approx(expected, abs=1e-4)
    assert [len(found.scores) for found in read] == [1, 2, 2, 3, 1]


def test_what_cannot_be_read_or_searched_is_named(tmp_path: Path) -> None:
    write_index(tmp_path, [build_page(file="a.pdf", page_number=1, text=TEXTS[0])], [])
    gone = RerankedConfig(model=str(tmp_path / "gone"), device="cpu")
    asked = [AskedQuestion("How fast?", (build_rollout("How fast?", "rotor"),))]
    for index, expected in (("search_index", r"rerank\.model '.*gone'"), ("elsewhere", "elsewhere")):
        with pytest.raises(ConfigError, match=expected):
            read_pages(asked, SearchAsAsked(Rerank(gone), tmp_path / index), Rerank(gone), tmp_path)
