"""The policies that are compared."""

import json
from pathlib import Path

import pytest
from factories import build_question

from drag_ray.baselines.passages import Hyde
from drag_ray.baselines.registry import BASELINES
from drag_ray.config import build, load
from drag_ray.errors import ArtifactError, ConfigError
from drag_ray.evaluate.config import EvaluateSections
from drag_ray.evaluate.policies.policy import choose_models, choose_subject, find_prices
from drag_ray.evaluate.policies.rollouts import group_by_engine, plan_policy
from drag_ray.finetune.training_folder import has_reward_model
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.rollout.plan import build_plan
from drag_ray.storage import artifacts


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    artifacts.write_text(tmp_path / "finetune" / "adapter" / "adapter_config.json", "{}")
    (tmp_path / "finetune" / "merged").mkdir()
    return tmp_path


def configure(*options: str) -> EvaluateSections:
    return load(RunConfig, options).take(EvaluateSections)


@pytest.mark.seconds
def test_the_runs_adapter_is_merged_on_a_cpu_and_dynamic_on_a_gpu(run_dir: Path) -> None:
    base, on_cpu = choose_models(configure(), run_dir / "finetune", has_gpu=False)
    _, on_gpu = choose_models(configure(), run_dir / "finetune", has_gpu=True)
    assert (base.name, base.engine.adapter) == ("base", "")
    assert (on_cpu.name, on_cpu.engine.model, on_cpu.engine.adapter) == ("tuned", str(run_dir / "finetune/merged"), "")
    assert (on_gpu.engine.model, on_gpu.engine.adapter) == ("embedded", str(run_dir / "finetune/adapter"))


def test_what_no_engine_writes_with_as_an_adapter_is_compared_as_a_whole_model_on_a_gpu_too(run_dir: Path) -> None:
    artifacts.write_text(run_dir / "finetune" / "adapter" / "adapter_config.json", '{"use_dora": true}')
    _, merged = choose_models(configure(), run_dir / "finetune", has_gpu=True)
    (run_dir / "whole" / "model").mkdir(parents=True)
    _, whole = choose_models(configure("--no-evaluate.merged"), run_dir / "whole", has_gpu=True)
    assert (merged.engine.model, merged.engine.adapter) == (str(run_dir / "finetune/merged"), "")
    assert (whole.engine.model, whole.engine.adapter) == (str(run_dir / "whole/model"), "")
    assert choose_subject([merged, whole], run_dir / "whole") == "tuned"


@pytest.fixture
def collector(run_dir: Path) -> str:
    """The adapter that the run collected with."""
    artifacts.write_text(run_dir / "first" / "adapter_config.json", "{}")
    return str(run_dir / "first")


@pytest.mark.parametrize("has_gpu", [False, True])
def test_each_policy_has_its_own_adapter_whatever_the_engine_names(run_dir: Path, collector: str, has_gpu: bool) -> None:
    models = choose_models(configure("--engine.adapter", collector), run_dir / "finetune", has_gpu=has_gpu)
    assert [(model.name, model.source) for model in models] == [("base", ""), ("start", "engine.adapter"), ("tuned", "finetune")]
    tuned = ("embedded", str(run_dir / "finetune/adapter")) if has_gpu else (str(run_dir / "finetune/merged"), "")
    assert [(model.engine.model, model.engine.adapter) for model in models] == [("embedded", ""), ("embedded", collector), tuned]
    assert choose_subject(models) == "tuned"


def test_adapters_that_are_named_replace_the_runs_own_beside_what_training_started_from(run_dir: Path, collector: str) -> None:
    sections = configure("--engine.adapter", collector, "--evaluate.adapters", f"mine={run_dir}/finetune/adapter")
    expected = [("base", ""), ("start", collector), ("mine", f"{run_dir}/finetune/adapter")]
    for finetune_dir in (None, run_dir / "finetune"):
        models = choose_models(sections, finetune_dir, has_gpu=False)
        assert [(model.name, model.engine.adapter) for model in models] == expected


def test_of_several_rounds_the_gain_of_the_one_that_was_chosen_is_in_question(run_dir: Path) -> None:
    rounds = [run_dir / "rounds" / number / "finetune" for number in "123"]
    for finetune_dir in rounds:
        artifacts.write_text(finetune_dir / "adapter" / "adapter_config.json", "{}")
    named = json.dumps([f"round{number}={folder}/adapter" for number, folder in enumerate(rounds, start=1)])
    models = choose_models(configure("--evaluate.adapters", named), rounds[1], has_gpu=False)
    assert [model.name for model in models] == ["base", "round1", "round2", "round3"]
    assert choose_subject(models, rounds[1]) == "round2"
    assert choose_subject(models, run_dir / "finetune") == "round3"  # the run's own is not among them


def test_before_training_the_adapter_that_collected_is_in_question(run_dir: Path, collector: str) -> None:
    assert choose_subject(choose_models(configure("--engine.adapter", collector), None, has_gpu=False)) == "start"
    artifacts.write_text(run_dir / "finetune" / "adapter" / "adapter_config.json", '{"task_type": "SEQ_CLS"}')
    models = choose_models(configure("--engine.adapter", collector), run_dir / "finetune", has_gpu=False)
    assert [model.name for model in models] == ["base", "start"]
    assert choose_subject(models) == "start"


def test_before_training_the_base_model_is_alone_and_no_gain_in_question() -> None:
    models = choose_models(configure(), None, has_gpu=False)
    assert ([model.name for model in models], choose_subject(models)) == (["base"], "")


def test_a_missing_adapter_names_the_job(tmp_path: Path) -> None:
    (tmp_path / "finetune").mkdir()
    with pytest.raises(ArtifactError, match=r"no LoRA adapter.*jobs/finetune\.py"):
        choose_models(configure(), tmp_path / "finetune", has_gpu=False)


@pytest.mark.parametrize(
    ("entry", "message"), [("folder-alone", "expected name=folder"), ("base={}/finetune/adapter", "'base' is given twice")]
)
def test_wrong_adapter_entries_are_refused(run_dir: Path, entry: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_models(configure("--evaluate.adapters", entry.format(run_dir)), run_dir / "finetune", has_gpu=False)


def test_an_unknown_baseline_is_refused_when_the_options_are_read_and_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=rf"evaluate\.baselines\.0: .*{'.*'.join(BASELINES)}.*, got 'bm25'"):
        configure("--evaluate.baselines", "bm25")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--evaluate.baselines", "best_of"), r"'best_of' is no baseline any more: Train a reranker \(--train-reranker"),
        (("--evaluate.best-of.samples", "3"), r"--evaluate\.best-of\.samples.* Train a reranker"),
        (("--serve.best-of", "8"), r"--serve\.best-of.* Train a reranker"),
    ],
)
def test_what_chose_among_replies_names_its_successor(options: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configure(*options)
    [section, name] = options[0].removeprefix("--").replace("-", "_").split(".")[:2]
    if name != "baselines":
        with pytest.raises(ConfigError, match=rf"options: unknown key '{section}\.{name}'\. Train a reranker"):
            build(RunConfig, {section: {name: 3}})


def test_a_reward_model_is_no_policy(run_dir: Path) -> None:
    finetune_dir = run_dir / "finetune"
    assert not has_reward_model(finetune_dir)
    artifacts.write_text(finetune_dir / "adapter" / "adapter_config.json", '{"task_type": "SEQ_CLS"}')
    assert has_reward_model(finetune_dir)
    assert [model.name for model in choose_models(configure(), finetune_dir, has_gpu=False)] == ["base"]


def test_baselines_that_an_engine_writes_for_ask_the_base_model(run_dir: Path) -> None:
    models = choose_models(configure("--evaluate.baselines", "hyde"), run_dir / "finetune", has_gpu=False)
    tasks = build_plan([build_question()], ("greedy",), 1, 0)
    plans = {model.name: plan_policy(model, {"hyde": Hyde()}, tasks) for model in models}
    assert {name: list(plan) for name, plan in plans.items()} == {"base": ["base", "hyde"], "tuned": ["tuned"]}
    [task] = plans["base"]["hyde"]
    assert (task.policy, task.baseline) == ("base", "hyde")
    rollouts = [task for plan in plans.values() for tasks in plan.values() for task in tasks]
    assert len({task.id for task in rollouts}) == len(rollouts) == 3
    assert len({task.seed for task in rollouts}) == 1  # all are asked at equal terms


def test_an_engine_is_shared_by_policies_that_differ_in_their_adapter(run_dir: Path, tmp_path: Path) -> None:
    artifacts.write_text(tmp_path / "sft" / "adapter_config.json", "{}")
    options = ("--evaluate.adapters", f'["sft={tmp_path / "sft"}"]')
    shared = choose_models(configure(*options), run_dir / "finetune", has_gpu=True)
    assert [[model.name for model in group] for group in group_by_engine(shared)] == [["base", "sft"]]
    merged = choose_models(configure(), run_dir / "finetune", has_gpu=False)
    assert [[model.name for model in group] for group in group_by_engine(merged)] == [["base"], ["tuned"]]


def test_the_rows_of_training_are_read_where_their_questions_are_asked() -> None:
    unread = {
        options: configure(*options).list_unread()
        for options in (
            (),
            ("--evaluate.question-weights", "1"),
            ("--evaluate.split", "validation"),
            ("--evaluate.baselines", '["rerank"]'),
            ("--evaluate.baselines", '["features", "rerank"]'),
        )
    }
    assert list(unread.values()) == [("format", "embed"), ("embed",), ("embed",), ("format", "embed"), ("embed",)]


def test_other_models_are_compared_and_never_the_subject(run_dir: Path) -> None:
    models = (
        """{"teacher": {"backend": "openai", "model": "large", "endpoint": {"address": "http://a", "completion_price": 8}}}"""
    )
    sections = configure("--evaluate.models", models, "--evaluate.completion-price", "2")
    alone = choose_models(sections, None, has_gpu=False)
    assert [(model.name, model.engine.model) for model in alone] == [("base", "embedded"), ("teacher", "large")]
    assert choose_subject(alone) == ""
    trained = choose_models(sections, run_dir / "finetune", has_gpu=False)
    assert choose_subject(trained) == "tuned"
    assert [len(group) for group in group_by_engine(trained)] == [1, 1, 1]
    prices = find_prices(sections.evaluate, trained)
    assert [prices.find(name).completion for name in ("base", "teacher", "tuned")] == [2, 8, 2]


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_model_behind_an_endpoint_takes_no_adapter_of_the_run(run_dir: Path, has_gpu: bool) -> None:
    sections = configure("--engine.backend", "openai", "--engine.endpoint.address", "http://a")
    with pytest.raises(ConfigError, match=r"takes no adapter.*evaluate\.models"):
        choose_models(sections, run_dir / "finetune", has_gpu=has_gpu)


def test_a_reranker_in_a_folder_is_a_source_of_an_evaluation_that_asks_it(tmp_path: Path) -> None:
    named = ("--evaluate.rerank.model", str(tmp_path))
    named += ("--evaluate.rerank.start", str(tmp_path))
    sources = configure("--evaluate.baselines", '["rerank"]', *named).list_sources()
    assert sources == {"evaluate.rerank.model": tmp_path, "evaluate.rerank.start": tmp_path}
    assert configure(*named).list_sources() == {}
    other = configure("--evaluate.baselines", '["rerank"]', "--evaluate.rerank.model", "BAAI/bge-reranker-v2-m3")
    assert other.list_sources() == {}
