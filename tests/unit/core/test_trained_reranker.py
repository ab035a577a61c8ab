"""The reranker of a pipeline as options: what it is trained and evaluated with, without running anything."""

from pathlib import Path

import pytest

from drag_ray.baselines.rerank import RerankedConfig
from drag_ray.config import override
from drag_ray.errors import ConfigError
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.pipeline.rounds import build_reranked_evaluation, build_reranker_training, run_pass, run_rounds
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.stage_runs.address import Address

PROCESS = Address("process", scope="rounds/1")


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    given = {"finetune": {"method": "dpo", "epochs": 3, "batch_size": 16}, "engine": {"adapter": "somebody/adapter"}}
    return override(RunConfig(run_dir=tmp_path, train_reranker=True, reads=("index=index", "format=mine/format")), given)


def test_it_learns_from_the_model_itself_and_from_rows_of_its_own_in_a_folder_of_its_own(config: RunConfig) -> None:
    training = build_reranker_training(config, PROCESS)
    assert training.format.formats == ("relevance",)
    assert (training.finetune.method, training.finetune.epochs, training.finetune.batch_size) == ("rerank", 1, 16)
    assert (training.scope, training.engine.adapter) == ("reranker", "")
    assert training.reads == ("index=index", "process=rounds/1/process")
    scoped = config.model_copy(update={"scope": "second"})
    assert build_reranker_training(scoped, Address("process", scope="second")).scope == "second/reranker"


def test_its_own_options_stand_above_the_others(config: RunConfig) -> None:
    own = {"finetune": {"epochs": 2, "limit": 500}, "format": {"relevance_pages": 2}}
    training = build_reranker_training(config.model_copy(update={"reranker": own}), PROCESS)
    assert (training.finetune.epochs, training.finetune.limit, training.finetune.method) == (2, 500, "rerank")
    assert (training.format.relevance_pages, training.format.formats) == (2, ("relevance",))


def test_it_is_evaluated_beside_what_else_is_compared(config: RunConfig, tmp_path: Path) -> None:
    settings = build_reranked_evaluation(config).evaluate
    assert settings.baselines == ("question", "rerank")
    assert settings.take(RerankedConfig).model == str(tmp_path / "reranker/finetune/adapter")
    ordered = config.model_copy(update={"evaluate": EvaluateConfig(baselines=("rerank", "rm3"))})
    assert build_reranked_evaluation(ordered).evaluate.baselines == ("rerank", "rm3")


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reranker": {"finetunes": {}}}, "reranker: unknown key 'finetunes'"),
        ({"reranker": {"finetune": {"method": "sft"}}}, "reranker: finetune.method sft trains no reranker"),
        ({"evaluate": {"rerank": {"model": "another"}}}, "evaluate.rerank.model 'another': the pipeline trains one itself"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is(tmp_path: Path, rounds: int, options: dict, said: str) -> None:
    run = run_rounds if rounds else run_pass
    with pytest.raises(ConfigError, match=said):
        run(override(RunConfig(run_dir=tmp_path, rounds=rounds, train_reranker=True), options))
    assert not list(tmp_path.iterdir())
