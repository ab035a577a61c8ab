"""Settings of an endpoint, known before an engine starts: its index, weights of the question, and no key."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serve_cases import OWN, TRAINED
from small_index import finish_index

from drag_ray.agent.record import write_record
from drag_ray.baselines.feature_model import FeatureModel, write_features
from drag_ray.engine.encoders import reranker_files
from drag_ray.errors import ArtifactError, ConfigError, SearchIndexError, ServeError
from drag_ray.evaluate.evaluation_folder import COMPARISON_NAME
from drag_ray.evaluate.policies.retriever_rescoring import FoundWeight
from drag_ray.evaluate.report.context import ReportContext
from drag_ray.feedback.log import read_secret
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.stages import SERVE
from drag_ray.search import vectors
from drag_ray.search.index import read_fingerprint
from drag_ray.search.vectors import write_vectors
from drag_ray.serve import settings
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.key import Key
from drag_ray.serve.served_models import ServedModels
from drag_ray.serve.settings import resolve_question_weights
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Page


@dataclass
class _Vectors:
    """Stands for vectors that are there."""

    folders: tuple[Path, ...]

    def __call__(self, folder: Path) -> bool:
        return folder in self.folders


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inputs:
    monkeypatch.setattr(settings, "check_functions_shown", lambda *_: None)  # the embedded model's template shows none
    finish_index(tmp_path, [Page("a.pdf", 1, 1, "rotor")], [])
    return Inputs({"index": tmp_path / "index", "finetune": None, "embed": None})


def build(inputs: Inputs, agent: dict[str, object], serve: dict[str, object], keys: Sequence[Key] = ()) -> settings.AppSettings:
    config = RunConfig.model_validate({"agent": {"max_iterations": 2, **agent}, "serve": serve})
    sections: Any = config.take(SERVE.sections)
    return settings.build_app_settings(sections, inputs, keys)


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("agent", "serve", "folder", "problem"),
    [
        ({"protocol": "tools", "tools": ["search", "image_search"]}, {}, vectors.IMAGES_DIR_NAME, "no vectors of the pictures"),
        ({"retrieval": "hybrid"}, {}, vectors.DIR_NAME, "agent.retrieval 'hybrid': .* has no vectors of its pages"),
        ({}, {"retrieval": "dense"}, vectors.DIR_NAME, "serve.retrieval 'dense': .* has no vectors of its pages"),
    ],
)
def test_vectors_are_looked_for_where_the_index_stage_leaves_them(
    inputs: Inputs,
    monkeypatch: pytest.MonkeyPatch,
    agent: dict[str, object],
    serve: dict[str, object],
    folder: str,
    problem: str,
) -> None:
    with pytest.raises(ConfigError, match=problem):
        build(inputs, agent, serve)
    index_dir = inputs["index"].resolve()
    present = _Vectors((index_dir / folder,))
    monkeypatch.setattr("drag_ray.recipes.opensearch_vl.image_search.has_vectors", present)
    monkeypatch.setattr(vectors, "has_vectors", present)
    assert build(inputs, agent, serve).index_dir == str(index_dir / "search_index")


@pytest.mark.seconds
def test_vectors_of_the_stage_embed_are_served_unless_they_are_of_another_index(inputs: Inputs, tmp_path: Path) -> None:
    fingerprint = read_fingerprint(inputs["index"] / "search_index")
    for name, index, of_index in (("embed", fingerprint, True), ("stale", "another", False)):
        with StageFolder(tmp_path / name, Identity("embed", {}, {}, command="python jobs/embed.py")) as folder:
            write_vectors([], folder.path / vectors.DIR_NAME, vectors.VectorsRecord(index, 0, 2, {}, []))
            folder.finish({})
        embedded = Inputs({**inputs.folders, "embed": tmp_path / name})
        if of_index:
            served = build(embedded, {"retrieval": "dense"}, {"retrieval": "hybrid"})
            assert served.vectors_dir == str(tmp_path / name / "vectors")
            continue
        with pytest.raises(SearchIndexError, match=r"vectors of the index another.*Embed its pages: python jobs/embed\.py"):
            build(embedded, {}, {"retrieval": "dense"})
    assert build(inputs, {}, {}).vectors_dir == str(tmp_path / "index" / "vectors")


@pytest.mark.seconds
def test_features_of_another_index_or_without_the_model_are_served_where_that_is_said(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint = read_fingerprint(inputs["index"] / "search_index")
    for of_index in (fingerprint, "another"):
        model = FeatureModel(means=(0.0,), deviations=(1.0,), weights=(1.0,), index_fingerprint=of_index)
        write_features(tmp_path, model)
        rerank: dict[str, object] = {"features": str(tmp_path / "." / "..") + f"/{tmp_path.name}"}
        if of_index == fingerprint:
            assert build(inputs, {}, {"rerank": rerank}).serve.rerank.features == tmp_path.resolve()
            continue
        with pytest.raises(ServeError, match=r"serve\.rerank\.features were learned on another index \(another\).*other-index"):
            build(inputs, {}, {"rerank": rerank})
        build(inputs, {}, {"rerank": {**rerank, "other_index": True}})
    monkeypatch.setattr(reranker_files, "find_files", lambda config: None)
    monkeypatch.setattr(reranker_files, "describe_other_index", lambda files, index_dir: "")
    rerank |= {"other_index": True, "model": "a model"}
    with pytest.raises(ConfigError, match=r"learned without a model, so.*serve\.rerank\.weight"):
        build(inputs, {}, {"rerank": rerank})
    build(inputs, {}, {"rerank": {**rerank, "weight": 0.5}})
    with pytest.raises(ConfigError, match=r"has no features\.json"):
        build(inputs, {}, {"rerank": {"features": str(tmp_path / "index")}})


def test_what_ray_carries_and_keeps_holds_no_key(inputs: Inputs) -> None:
    key = "a-key-for-this-test-alone"
    carried = build(inputs, {}, {"api_key": key}, [Key(key)])
    [known] = carried.keys
    assert known.matches(key.encode())
    assert key.encode() not in pickle.dumps(carried)


@pytest.mark.seconds
def test_feedback_lies_beside_the_index_with_one_secret_for_all_engines_and_needs_searches(
    inputs: Inputs, tmp_path: Path
) -> None:
    build(inputs, {}, {})
    assert not (tmp_path / "feedback").exists()
    assert build(inputs, {}, {"feedback": {"enabled": True}}).run_dir == str(tmp_path)
    assert len(read_secret(tmp_path / "feedback")) == 32
    without = Inputs({"index": None, "finetune": None, "embed": None})
    with pytest.raises(ConfigError, match=r"serve\.feedback\.enabled: the run has no index"):
        build(without, {}, {"feedback": {"enabled": True}})


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    """A finished evaluation that has found weights for two policies."""
    found = {"base": FoundWeight(4.0, 100, {2.0: 0.5, 4.0: 0.6}), "tuned": FoundWeight(1.0, 100, {1.0: 0.7, 2.0: 0.6})}
    context = ReportContext("or", "english", "greedy", (0,), question_weights=found)
    with StageFolder(tmp_path / "evaluate", Identity("evaluate", {}, {})) as folder:
        artifacts.write_json(folder.path / COMPARISON_NAME, {"context": context.to_dict()})
        folder.finish({})
    return tmp_path / "evaluate"


def test_models_are_asked_with_the_weights_that_were_found_for_their_names(evaluation: Path) -> None:
    config = ServeConfig(evaluation=evaluation)
    assert resolve_question_weights(config, ["tuned", "other"]) == {"base": 4.0, "tuned": 1.0}
    assert resolve_question_weights(config, []) == {"base": 4.0}
    assert resolve_question_weights(ServeConfig(), ["tuned"]) == {}


def test_an_evaluation_that_found_nothing_for_them_or_has_not_finished_is_refused(evaluation: Path, tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=r"weights of the question for base, tuned, and served are mine, other"):
        resolve_question_weights(ServeConfig(evaluation=evaluation, served_name="mine"), ["other"])
    with pytest.raises(ArtifactError, match=r"python jobs/evaluate\.py"):
        resolve_question_weights(ServeConfig(evaluation=tmp_path / "nowhere"), ["tuned"])


def test_an_adapter_that_is_loaded_later_by_the_same_name_is_asked_as_it_was_trained(tmp_path: Path) -> None:
    write_record(tmp_path, TRAINED)
    adapters = {"tuned": SimpleNamespace(lora_name="tuned", lora_path=str(tmp_path))}
    models = ServedModels(adapters, "base", "tuned", OWN, question_weights={"base": 4.0, "tuned": 1.0})
    assert models.choose("base").record == OWN.weigh(4.0)
    assert models.choose("").record == TRAINED.weigh(1.0)
    assert TRAINED.weigh(1.0).agent == TRAINED.agent.model_copy(update={"question_weight": 1.0})
    adapters["tuned"] = SimpleNamespace(lora_name="tuned", lora_path=str(tmp_path))
    assert models.choose("tuned").record == TRAINED
