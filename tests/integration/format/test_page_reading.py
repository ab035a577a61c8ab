"""Pages read with their questions by a model in Ray's actors."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from factories import build_page, build_question, build_search, build_trajectory
from nano_training import make_nano_model
from small_index import write_index

from drag_ray.baselines.baseline import Sources
from drag_ray.baselines.feature_model import FeatureModel, read_features
from drag_ray.baselines.feature_training import FEATURES_ALONE
from drag_ray.baselines.features import Features
from drag_ray.baselines.page_features import FeatureScorer
from drag_ray.baselines.rerank import Rerank, RerankedConfig
from drag_ray.cluster import tasks
from drag_ray.config import build
from drag_ray.engine.encoders import reranker_files
from drag_ray.engine.encoders.reranker import load_reranker
from drag_ray.engine.encoders.reranker_files import find_files
from drag_ray.errors import ConfigError, SearchIndexError
from drag_ray.evaluate.config import EvaluateSections
from drag_ray.evaluate.policies.reranked_policies import AskedQuestion, list_pages, read_pages
from drag_ray.evaluate.policies.retriever_rescoring import SearchAsAsked
from drag_ray.evaluate.stage import share_features
from drag_ray.format.split import SIDES_NAME, TRAIN, VALIDATION
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.search.config import Factors
from drag_ray.search.index import read_fingerprint
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.types import Evidence, Trajectory

TEXTS = ["The rotor turns at 340 rpm.", "The fuel pump has a filter.", "Oil is changed once a year."]
pytestmark = pytest.mark.usefixtures("local_ray")
WORDS = ["", "rotor", "fuel oil", "rotor pump year"]


def build_rollout(question: str, query: str) -> Trajectory:
    return build_trajectory(build_search(query), question=build_question(question=question), query_mode="rewrite")


# The next test reads in one process too.
@pytest.mark.parametrize("apart", [pytest.param(False, marks=pytest.mark.slow), True])
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
    features = FeatureModel(means=(0.0,) * 9, deviations=(1.0,) * 9, weights=(1.0,) * 9, with_model=Factors(1.0, 1.0))
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


@pytest.mark.usefixtures("rows_in_process")
def test_what_a_model_counts_beside_features_is_learned_on_validation_questions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    diseases = [f"{first}{last}itis" for first in ("gastr", "nephr", "arthr", "derm", "bronch") for last in ("o", "a", "e", "u")]
    texts = ("therapy drugs surgery", "fever pain rash")
    pages = [
        build_page(file=f"{name}.pdf", page_number=n, text=f"{name} {text}")
        for name in diseases
        for n, text in enumerate(texts, 1)
    ]
    questions = [
        build_question(id=f"{name} {n}", question=asked.format(name), evidence=(Evidence(f"{name}.pdf", n),), split="train")
        for name in diseases
        for n, asked in enumerate(("How is {} treated?", "What does {} look like?"), 1)
    ]
    write_index(tmp_path / "index", pages, questions)
    sides = [{"question_id": one.id, "side": VALIDATION if place % 2 else TRAIN} for place, one in enumerate(questions)]
    (tmp_path / "format").mkdir()
    pl.DataFrame(sides).write_parquet(tmp_path / "format" / SIDES_NAME)
    nano_model = make_nano_model(tmp_path / "nano", hidden_size=32)
    sections: Any = build(RunConfig, {"evaluate": {"rerank": {"model": str(nano_model), "device": "cpu"}}}).take(EvaluateSections)
    sources = Sources(sections.evaluate, tmp_path / "index", 0)
    baselines = {"features": Features.prepare(sources), "rerank": Rerank.prepare(sources)}
    known = {"index": tmp_path / "index", "questions": None, "finetune": None, "format": tmp_path / "format"}

    def share(inputs: Mapping[str, Path | None], name: str) -> Factors | float | None:
        (stage_dir := tmp_path / name).mkdir()
        reranker = share_features(baselines, sections, Inputs(inputs), stage_dir)["rerank"]
        model = read_features(stage_dir)
        assert isinstance(reranker, Rerank)
        assert reranker.features == model
        assert model.with_model in (None, reranker.weight)
        return model.with_model

    def train_for(index_fingerprint: str) -> None:
        changed = replace(files, index_fingerprint=index_fingerprint)
        monkeypatch.setattr(reranker_files, "find_files", lambda config: changed)

    files = find_files(baselines["rerank"].options)
    assert isinstance(share(known, "learned"), Factors)
    assert "by 20 validation questions" in caplog.text
    own = read_fingerprint(tmp_path / "index" / "search_index")
    without = {**known, "format": None}
    for place, (trained_for, expected) in enumerate((("", None), ("another", None), (own, 0.5))):  # learned to read here, or not
        caplog.clear()
        train_for(trained_for)
        assert share(without, f"without_{place}") == expected
        assert f"counts {'half' if expected else 'alone'}" in caplog.text
    pl.DataFrame(sides[:8]).write_parquet(tmp_path / "format" / SIDES_NAME)
    train_for("another")
    assert share(known, "few") == FEATURES_ALONE
    assert "it counts nothing" in caplog.text
    assert "too few of 4 validation questions" in caplog.text


@pytest.mark.usefixtures("rows_in_process")
def test_what_cannot_be_read_or_searched_is_named(tmp_path: Path) -> None:
    write_index(tmp_path, [build_page(file="a.pdf", page_number=1, text=TEXTS[0])], [])
    gone = RerankedConfig(model=str(tmp_path / "gone"), device="cpu")
    asked = [AskedQuestion("How fast?", (build_rollout("How fast?", "rotor"),))]
    with pytest.raises(ConfigError, match=r"rerank\.model '.*gone'"):
        read_pages(asked, SearchAsAsked(Rerank(gone), tmp_path / "search_index"), Rerank(gone), tmp_path)
    with pytest.raises(SearchIndexError, match="elsewhere"):
        SearchAsAsked(Rerank(gone), tmp_path / "elsewhere")(asked[0].rollouts)
