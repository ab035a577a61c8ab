"""What is said of the baselines that there are: names, options, needs."""

from pathlib import Path

import pytest

from drag_ray.baselines.baseline import Baseline, Need, Sources
from drag_ray.baselines.best_of import BestOf, BestOfConfig
from drag_ray.baselines.passages import PassageConfig
from drag_ray.baselines.registry import BASELINES, REWARD_MODEL_JUDGES, BaselineSections, list_engine_sections
from drag_ray.baselines.rm3 import Rm3, Rm3Config
from drag_ray.config import load
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
    best_of = BASELINES["best_of"].prepare(sources)
    assert best_of == BestOf(BestOfConfig(samples=3), Path("finetune/merged"))
    assert evaluate.take(BestOfConfig) is best_of.options


def test_those_that_are_drawn_have_the_preset_of_their_options_and_the_others_none() -> None:
    sections = BaselineSections(best_of=BestOfConfig(preset="creative"), passage=PassageConfig(num_examples=0))
    presets = {name: baseline.prepare(Sources(sections, Path(), 0)).preset for name, baseline in BASELINES.items()}
    assert presets == {name: "creative" if name in ("drawn", "best_of") else None for name in BASELINES}


def test_needs_are_told_apart() -> None:
    assert [name for name, baseline in BASELINES.items() if not baseline.uses_engine()] == [
        "question",
        "question_keywords",
        "rm3",
    ]
    assert [name for name, baseline in BASELINES.items() if baseline.need is Need.REWARD_MODEL] == ["best_of"]
    assert REWARD_MODEL_JUDGES == ("drawn", "best_of")
    assert list_engine_sections() == ["passage", "best_of"]
