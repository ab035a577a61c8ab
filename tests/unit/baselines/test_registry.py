"""Registry of the baselines: names, options, needs."""

from pathlib import Path
from typing import Any

import pytest

from drag_ray.baselines.baseline import Baseline, Sources
from drag_ray.baselines.dense import Dense, Hybrid
from drag_ray.baselines.registry import BASELINES, list_engine_sections
from drag_ray.baselines.rerank import Rerank, RerankedConfig
from drag_ray.config import load
from drag_ray.errors import ConfigError
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.pipeline.run_config import RunConfig


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


def test_dense_and_hybrid_need_an_index_with_vectors(tmp_path: Path) -> None:
    evaluate = EvaluateConfig()
    for name in ("dense", "hybrid"):
        with pytest.raises(ConfigError, match=rf"baselines '{name}': .* has no vectors .*jobs/index\.py --embedding\.model"):
            BASELINES[name].prepare(Sources(evaluate, tmp_path, 0))
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "vectors.json").write_text("{}")
    assert BASELINES["dense"].prepare(Sources(evaluate, tmp_path, 0)) == Dense(tmp_path / "vectors")
    assert BASELINES["hybrid"].prepare(Sources(evaluate, tmp_path, 0)) == Hybrid(tmp_path / "vectors")
    weighing = Sources(evaluate, tmp_path, 0, dense_weight=0.7)
    assert BASELINES["hybrid"].prepare(weighing) == Hybrid(tmp_path / "vectors", 0.7)


def test_vectors_that_were_made_again_stand_beside_those_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drag_ray.search.vectors.has_vectors", lambda folder: True)
    for name in ("read_fingerprint", "vectors.read_vectors_record"):
        monkeypatch.setattr(f"drag_ray.agent.retrieval.{name}", lambda *given: None)
    sources = Sources(EvaluateConfig(), tmp_path / "index", 0, embed_dir=tmp_path / "embed")
    for name, stage in {"dense": "embed", "hybrid": "embed", "index_dense": "index", "index_hybrid": "index"}.items():
        prepared: Any = BASELINES[name].prepare(sources)
        assert prepared.vectors_dir == tmp_path / stage / "vectors"


@pytest.fixture
def any_model_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("find_files", "describe_other_index"):
        monkeypatch.setattr(f"drag_ray.engine.encoders.reranker_files.{name}", lambda *given: None)


@pytest.mark.usefixtures("any_model_ranks")
def test_reranking_needs_a_model(tmp_path: Path) -> None:
    evaluate = load(RunConfig, ["--evaluate.rerank.depth", "20"]).evaluate
    with pytest.raises(ConfigError, match=r"baselines 'rerank': no reranker is set\. .*--evaluate\.rerank\.model"):
        BASELINES["rerank"].prepare(Sources(evaluate, tmp_path, 0))
    evaluate = load(RunConfig, ["--evaluate.rerank.depth", "20", "--evaluate.rerank.model", "ranker"]).evaluate
    baseline = BASELINES["rerank"].prepare(Sources(evaluate, tmp_path, 0))
    assert baseline == Rerank(RerankedConfig(model="ranker", depth=20))
    assert baseline.describe().endswith("(ranker, of 20 pages by bm25)")


@pytest.mark.usefixtures("any_model_ranks")
def test_a_start_that_makes_no_vectors_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    evaluate = load(RunConfig, ["--evaluate.rerank.model", "ranker", "--evaluate.rerank.start", str(tmp_path)]).evaluate
    with pytest.raises(
        ConfigError, match=r"^evaluate\.rerank\.start '.*': no modules\.json there, so it makes no vectors\. Name"
    ):
        BASELINES["rerank"].prepare(Sources(evaluate, tmp_path, 0))


@pytest.mark.usefixtures("any_model_ranks")
def test_the_search_that_is_named_finds_what_is_reranked(tmp_path: Path) -> None:
    evaluate = load(RunConfig, ["--evaluate.rerank.model", "ranker", "--evaluate.rerank.retrieval", "hybrid"]).evaluate
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "vectors.json").write_text("{}")
    baseline = BASELINES["rerank"].prepare(Sources(evaluate, tmp_path, 0))
    assert baseline == Rerank(RerankedConfig(model="ranker", retrieval="hybrid"), Hybrid(tmp_path / "vectors"))


def test_the_baselines_that_an_engine_writes_for_are_told_apart() -> None:
    assert [name for name, baseline in BASELINES.items() if baseline.uses_engine] == ["hyde", "query2doc"]
    assert list_engine_sections() == ["passage"]
