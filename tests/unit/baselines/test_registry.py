"""What is said of the baselines that there are: names, options, needs."""

from pathlib import Path

import pytest

from drag_ray.baselines.baseline import Baseline, Need, Sources
from drag_ray.baselines.best_of import BestOf, BestOfConfig, Drawn
from drag_ray.baselines.dense import Dense
from drag_ray.baselines.hybrid import Hybrid, HybridConfig
from drag_ray.baselines.registry import BASELINES, REWARD_MODEL_JUDGES, BaselineSections, list_engine_sections
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


def test_options_reach_the_baselines_that_share_them() -> None:
    evaluate = load(RunConfig, ["--evaluate.best-of.samples", "3", "--evaluate.rm3.fb-docs", "7"]).evaluate
    sources = Sources(evaluate, Path(), 0, Path("finetune/merged"))
    assert BASELINES["rm3"].prepare(sources) == Rm3(Rm3Config(fb_docs=7))
    assert BASELINES["drawn"].prepare(sources) == Drawn(BestOfConfig(samples=3))
    assert BASELINES["best_of"].prepare(sources) == BestOf(BestOfConfig(samples=3), Path("finetune/merged"))


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


def test_those_that_are_drawn_have_the_preset_of_their_options_and_the_others_none() -> None:
    sections = BaselineSections.model_validate({"best_of": BestOfConfig(preset="creative")})
    presets = {name: BASELINES[name].prepare(Sources(sections, Path(), 0)).preset for name in ("rm3", "hyde", "drawn", "best_of")}
    assert presets == {"rm3": None, "hyde": None, "drawn": "creative", "best_of": "creative"}


def test_the_needs_of_baselines_are_told_apart() -> None:
    assert [BASELINES[name].need for name in ("question", "question_keywords", "rm3", "dense", "hybrid")] == [Need.NOTHING] * 5
    assert [BASELINES[name].need for name in ("hyde", "query2doc", "drawn")] == [Need.ENGINE] * 3
    assert BASELINES["best_of"].need is Need.REWARD_MODEL
    assert [BASELINES[name].uses_engine() for name in ("rm3", "hyde", "best_of")] == [False, True, True]
    assert REWARD_MODEL_JUDGES == ("drawn", "best_of")
    assert list_engine_sections() == ["passage", "best_of"]
