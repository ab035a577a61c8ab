"""What is said of the baselines that there are: names, options, needs."""

from pathlib import Path

import pytest

from drag_ray.baselines.baseline import Baseline, Need, Sources
from drag_ray.baselines.best_of import BestOf, BestOfConfig
from drag_ray.baselines.dense import Dense
from drag_ray.baselines.gain_model import GainModel, write_gain_model
from drag_ray.baselines.hybrid import Hybrid, HybridConfig
from drag_ray.baselines.registry import BASELINES, BaselineSections, list_engine_sections
from drag_ray.baselines.rerank import Rerank, RerankedConfig
from drag_ray.baselines.rm3 import Rm3, Rm3Config
from drag_ray.config import load
from drag_ray.errors import ConfigError
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.run_config import RunConfig


def test_every_baseline_is_one_that_the_options_know_and_explain() -> None:
    evaluate = load(RunConfig, [part for name in BASELINES for part in ("--evaluate.baselines", name)]).evaluate
    assert evaluate.baselines == tuple(BASELINES)
    text = EvaluateConfig.model_fields["baselines"].description or ""
    assert all(f"{name}: {baseline.summary}" in text for name, baseline in BASELINES.items())


@pytest.mark.parametrize("baseline", BASELINES.values(), ids=BASELINES)
def test_the_options_of_a_baseline_are_a_section_that_names_it(baseline: type[Baseline]) -> None:
    if baseline.section is None:
        return
    name, options = baseline.section
    field = EvaluateConfig.model_fields[name]
    assert field.annotation is options
    assert baseline.name in (field.description or "").split()


def test_options_reach_the_baselines(tmp_path: Path) -> None:
    evaluate = load(RunConfig, ["--evaluate.best-of.samples", "3", "--evaluate.rm3.fb-docs", "7"]).evaluate
    model = GainModel(("rbo",), (0.5,), (0.2,), (0.1, 0.0), 0.01)
    write_gain_model(tmp_path, model)
    sources = Sources(evaluate, Path(), 0, Path("finetune/merged"), tmp_path)
    assert BASELINES["rm3"].prepare(sources) == Rm3(Rm3Config(fb_docs=7))
    assert BASELINES["best_of"].prepare(sources) == BestOf(BestOfConfig(samples=3), model, Path("finetune/merged"))


def test_what_choosing_was_worth_on_validation_questions_is_said() -> None:
    figures = {"questions": 900, "candidates": 8822, "validation_questions": 100, "wins": 7, "losses": 2}
    gains = {"chosen_gain": 0.0125, "oracle_gain": 0.05, "first_gain": -0.01}
    model = GainModel(("rbo",), (0.5,), (0.2,), (0.1, 0.0), 0.01, {**figures, **gains})
    said = BestOf(gain_model=model).describe()
    assert said.startswith(BestOf.summary)
    assert "fitted to 8822 searches for 900 questions; on 100 validation questions choosing gains +0.0125 of the +0.0500" in said
    assert "first reply alone -0.0100: utility over the question's, better on 7 and worse on 2" in said
    assert "gains nothing on validation questions" in BestOf(gain_model=GainModel(figures=figures)).describe()
    assert "without validation questions nothing is known of its worth" in BestOf(gain_model=GainModel()).describe()


def test_dense_and_hybrid_need_an_index_with_vectors(tmp_path: Path) -> None:
    evaluate = load(RunConfig, ["--evaluate.hybrid.depth", "30", "--evaluate.hybrid.rrf-k", "10"]).evaluate
    for name in ("dense", "hybrid"):
        with pytest.raises(ConfigError, match=rf"baselines '{name}': .* has no vectors .*jobs/index\.py --embedding\.model"):
            BASELINES[name].prepare(Sources(evaluate, tmp_path, 0))
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "vectors.json").write_text("{}")
    assert BASELINES["dense"].prepare(Sources(evaluate, tmp_path, 0)) == Dense(tmp_path / "vectors")
    options = HybridConfig(depth=30, rrf_k=10)
    assert BASELINES["hybrid"].prepare(Sources(evaluate, tmp_path, 0)) == Hybrid(tmp_path / "vectors", options)


@pytest.fixture
def any_model_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("find_files", "say_other_index"):
        monkeypatch.setattr(f"drag_ray.engine.reranker_files.{name}", lambda *given: None)


@pytest.mark.usefixtures("any_model_ranks")
def test_reranking_needs_a_model(tmp_path: Path) -> None:
    evaluate = load(RunConfig, ["--evaluate.rerank.depth", "20"]).evaluate
    with pytest.raises(ConfigError, match=r"baselines 'rerank': there is no model that ranks\. .*--evaluate\.rerank\.model"):
        BASELINES["rerank"].prepare(Sources(evaluate, tmp_path, 0))
    evaluate = load(RunConfig, ["--evaluate.rerank.depth", "20", "--evaluate.rerank.model", "ranker"]).evaluate
    baseline = BASELINES["rerank"].prepare(Sources(evaluate, tmp_path, 0))
    assert baseline == Rerank(RerankedConfig(model="ranker", depth=20))
    assert baseline.describe().endswith("(ranker, of 20 pages by bm25)")


@pytest.mark.usefixtures("any_model_ranks")
def test_reranking_of_what_vectors_find_needs_vectors(tmp_path: Path) -> None:
    named = ["--evaluate.rerank.model", "ranker", "--evaluate.rerank.retrieval", "hybrid", "--evaluate.hybrid.depth", "30"]
    evaluate = load(RunConfig, named).evaluate
    with pytest.raises(ConfigError, match=r"has no vectors .*jobs/index\.py --embedding\.model"):
        BASELINES["rerank"].prepare(Sources(evaluate, tmp_path, 0))
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "vectors.json").write_text("{}")
    baseline = BASELINES["rerank"].prepare(Sources(evaluate, tmp_path, 0))
    hybrid = Hybrid(tmp_path / "vectors", HybridConfig(depth=30))
    assert baseline == Rerank(RerankedConfig(model="ranker", retrieval="hybrid"), hybrid)


def test_those_that_are_drawn_have_the_preset_of_their_options_and_the_others_none() -> None:
    sections = BaselineSections.model_validate({"best_of": BestOfConfig(preset="creative")})
    presets = {name: BASELINES[name].prepare(Sources(sections, Path(), 0)).preset for name in ("rm3", "hyde")}
    assert presets == {"rm3": None, "hyde": None}
    assert BestOf(sections.take(BestOfConfig)).preset == "creative"


def test_the_needs_of_baselines_are_told_apart() -> None:
    assert [BASELINES[name].need for name in ("question", "rm3", "dense", "hybrid", "rerank")] == [Need.NOTHING] * 5
    assert [BASELINES[name].need for name in ("hyde", "query2doc")] == [Need.ENGINE] * 2
    assert BASELINES["best_of"].need is Need.POLICY
    assert [BASELINES[name].uses_engine() for name in ("rm3", "hyde", "best_of")] == [False, True, True]
    assert list_engine_sections() == ["passage", "best_of"]
