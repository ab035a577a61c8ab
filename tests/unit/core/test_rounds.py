"""Rounds and the reranker of a pipeline as options: what each of them runs with, without running anything."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drag_ray.baselines.rerank import RerankedConfig
from drag_ray.config import override
from drag_ray.errors import ConfigError
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.pipeline import reinforcement
from drag_ray.pipeline import rounds as pipeline_rounds
from drag_ray.pipeline.reinforcement import build_reinforced_evaluation, build_reinforcement, reinforce
from drag_ray.pipeline.rounds import (
    build_final,
    build_reranked_evaluation,
    build_reranker_training,
    build_round,
    build_validation,
    check_pipeline,
    plan_rankers,
    run_pass,
    run_rounds,
    start_engines_early,
)
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.stages import Stage
from drag_ray.rollout import runner
from drag_ray.stage_runs.address import Address

CURRICULUM = ({"collect": {"samples_per_question": 2}}, {"finetune": {"method": "dpo", "learning_rate": 5e-5}})


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return RunConfig(run_dir=tmp_path, rounds=3, curriculum=CURRICULUM)


def test_a_round_begins_with_the_adapter_and_the_options_of_the_one_before(config: RunConfig, tmp_path: Path) -> None:
    adapters = [build_round(config, number).engine.adapter for number in (1, 2, 3)]
    assert adapters == ["", *(str(tmp_path / f"rounds/{number}/finetune/adapter") for number in (1, 2))]
    assert [build_round(config, number).scope for number in (1, 2, 3)] == ["rounds/1", "rounds/2", "rounds/3"]
    rounds = [build_round(config, number) for number in (1, 2, 3)]
    assert [changed.finetune.method for changed in rounds] == ["sft", "dpo", "dpo"]
    assert [changed.collect.samples_per_question for changed in rounds] == [2, 4, 4]
    assert rounds[2].finetune.learning_rate == 5e-5
    assert rounds[0].finetune == config.finetune


@pytest.mark.parametrize(
    ("options", "starts"),
    [
        ({}, True),
        ({"curriculum": [{"engine": {"model": "another"}}]}, True),
        ({"embedding": {"model": "a folder"}}, False),  # the index takes the GPUs
        ({"corpus": {"documents": "a folder"}}, False),  # a model writes questions first
    ],
)
def test_engines_start_while_the_index_is_built_where_nobody_else_wants_the_gpus(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], starts: bool
) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(runner, "start_engines", lambda agent, engine, settings, run_dir: begun.append((engine.model, run_dir)))
    start_engines_early(override(config, options))
    model = options.get("curriculum", [{}])[0].get("engine", {}).get("model", config.engine.model)
    assert begun == ([(model, config.run_dir)] if starts else [])
    (config.run_dir / "index").mkdir()
    (config.run_dir / "index" / "identity.json").touch()
    start_engines_early(config)
    assert len(begun) == starts


def test_a_round_is_judged_by_validation_questions_alone_and_the_best_on_the_split_that_was_asked_for(config: RunConfig) -> None:
    compared = {"baselines": ("rm3",), "adapters": ("third=elsewhere",), "question_weights": (1.0, 2.0)}
    asked = config.model_copy(update={"evaluate": config.evaluate.model_copy(update=compared)})
    judged = build_validation(build_round(asked, 2))
    assert (judged.evaluate.split, judged.evaluate.limit, judged.engine.adapter) == ("validation", 0, "")
    # Adapters of later rounds are not there yet, and weights are found on these very questions.
    assert (judged.evaluate.baselines, judged.evaluate.adapters, judged.evaluate.question_weights) == (("question",), (), ())
    named = config.model_copy(update={"reads": ("index=index", "finetune=finetune/mine")})
    final = build_final(named, 2)
    assert final.reads == ("index=index", "finetune=rounds/2/finetune", "format=rounds/2/format")
    assert (final.scope, final.evaluate.split) == ("", "test")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"finetunes": {}}, "unknown key 'finetunes'"),
        ({"finetune": {"learning_rates": 1}}, "unknown key 'finetune.learning_rates'. Did you mean 'learning_rate'"),
        ({"finetune": {"learning_rate": -1}}, "learning_rate"),
        ({"finetune": {"method": "reward"}}, "trains no policy"),
    ],
)
def test_a_wrong_entry_of_the_curriculum_is_refused_with_its_place(tmp_path: Path, entry: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_round(RunConfig(run_dir=tmp_path, rounds=1, curriculum=(entry,)), 1)


def test_a_teacher_collects_in_the_first_round_alone(tmp_path: Path) -> None:
    teacher = {"collect": {"teacher": {"model": "large"}}}
    taught = RunConfig(run_dir=tmp_path, rounds=2, curriculum=(teacher, {}))
    assert [build_round(taught, number).collect.teacher is not None for number in (1, 2)] == [True, False]
    for always in (override(taught, {"curriculum": [teacher]}), override(RunConfig(run_dir=tmp_path, rounds=2), teacher)):
        with pytest.raises(ConfigError, match=r"collect\.teacher: round 2 collects with the policy of the previous round"):
            run_rounds(always)
    assert not list(tmp_path.iterdir())


def test_reinforcement_goes_on_from_the_best_round_with_the_options_of_the_run_and_is_evaluated_beside_it(
    config: RunConfig, tmp_path: Path
) -> None:
    asked = override(
        config,
        {
            "reinforce": True,
            "finetune": {"learning_rate": 1e-6, "start": "base", "arguments": {"weight_decay": 0.1}},
            "curriculum": [{"finetune": {"epochs": 3}}],
        },
    )
    start = Address("finetune", scope="rounds/2")
    reinforced = build_reinforcement(asked, start)
    assert reinforced.engine.adapter == str(tmp_path / "rounds/2/finetune/adapter")
    own = asked.finetune.model_copy(update={"start": "policy", "arguments": {}})
    assert (reinforced.scope, reinforced.finetune) == ("", own)
    assert build_round(asked, 1).finetune.epochs == 3
    final = build_reinforced_evaluation(build_final(asked, 2), start)
    own = f"rl={tmp_path / 'rl/adapter'}"
    assert final.evaluate.adapters == (f"tuned={tmp_path / 'rounds/2/finetune/adapter'}", own)
    assert final.engine.adapter == ""
    named = override(asked, {"evaluate": {"adapters": ["first=elsewhere"]}})
    assert build_reinforced_evaluation(named, start).evaluate.adapters == ("first=elsewhere", own)
    assert reinforce(config, final, start, lambda: pytest.fail("Ray was started")) == ({}, final)


@pytest.mark.parametrize(
    ("rounds", "before", "start"), [(0, [], "finetune"), (2, [1, 2], "rounds/2/finetune")], ids=["one pass", "rounds"]
)
def test_a_pipeline_that_reinforces_ends_with_rl_and_the_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, before: list[int], start: str
) -> None:
    ran: list[tuple[str, str, str, tuple[str, ...]]] = []

    def note(stages: Sequence[Stage], config: RunConfig, start_ray: object) -> dict[str, Any]:
        last = stages[-1].name
        ran.extend([(stage.name, config.scope, config.engine.adapter, config.evaluate.adapters) for stage in stages])
        return {f"{config.scope}/{last}": last}

    for module in (pipeline_rounds, reinforcement):
        monkeypatch.setattr(module, "run_stages", note)
    monkeypatch.setattr(pipeline_rounds, "_read_evaluation", lambda config, number: None)
    monkeypatch.setattr(pipeline_rounds, "compare_rounds", lambda evaluations: [])
    monkeypatch.setattr(pipeline_rounds, "format_history", lambda history: "")
    monkeypatch.setattr(pipeline_rounds, "choose_best", lambda history: SimpleNamespace(number=2, chosen_by="mrr"))
    run = run_rounds if rounds else run_pass
    run(RunConfig(run_dir=tmp_path, rounds=rounds, reinforce=True))
    assert [scope for name, scope, *_ in ran if name == "finetune"] == [f"rounds/{number}" for number in before] or not before
    adapter = str(tmp_path / start / "adapter")
    assert [entry[:3] for entry in ran[-2:]] == [("rl", "", adapter), ("evaluate", "", "")]
    assert ran[-1][3] == (f"tuned={adapter}", f"rl={tmp_path / 'rl/adapter'}")
    assert not [name for name, *_ in ran[:-2] if name == "rl"]


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"finetune": {"method": "reward"}, "format": {"formats": ["reward"]}}, "trains no policy"),
        ({"rl": {"preset": "greedy"}}, "rl.preset 'greedy'"),
        ({"finetune": {"parts": ["language"]}}, r"finetune\.parts language: .* the next round, or rl, starts from an adapter"),
        ({"finetune": {"lora": {"use_dora": True}}}, r"finetune\.lora: use_dora True: its result is a whole model"),
        ({"finetune": {"quantization": "nf4"}}, r"finetune\.quantization: rl trains an adapter, of the base model as it is"),
        ({"process": {"judge": {"enabled": True}}}, "process.judge.enabled: rl scores rollouts"),
    ],
)
def test_a_pipeline_that_cannot_end_with_rl_is_refused_before_anything_is_run(
    tmp_path: Path, rounds: int, options: dict, said: str
) -> None:
    run = run_rounds if rounds else run_pass
    with pytest.raises(ConfigError, match=said):
        run(override(RunConfig(run_dir=tmp_path, rounds=rounds, reinforce=True), options))
    assert not list(tmp_path.iterdir())


def test_rounds_whose_adapter_rl_could_not_go_on_from_are_refused_before_anything_is_run(tmp_path: Path) -> None:
    options = {"curriculum": [{}, {"finetune": {"lora_r": 32}}]}
    with pytest.raises(ConfigError, match=r"reinforce: round 2 has another finetune.lora_r .*outside of curriculum"):
        run_rounds(override(RunConfig(run_dir=tmp_path, rounds=2, reinforce=True), options))
    assert not list(tmp_path.iterdir())


def test_options_of_a_method_that_is_not_chosen_survive_an_override(config: RunConfig) -> None:
    """A record of the options leaves them out, so a round must not be built from a record."""
    chosen = override(config, {"finetune": {"dpo": {"beta": 0.5}}}, "here")
    assert override(chosen, {"finetune": {"method": "dpo"}}, "here").finetune.dpo.beta == 0.5


PROCESS = Address("process", scope="rounds/1")


def test_the_last_round_alone_may_train_a_whole_model(config: RunConfig) -> None:
    check_pipeline(override(config, {"curriculum": [{}, {}, {"finetune": {"parts": ["language"], "start": "base"}}]}))
    with pytest.raises(ConfigError, match=r"finetune\.parts language: its result is a whole model"):
        check_pipeline(override(config, {"curriculum": [{"finetune": {"parts": ["language"]}}]}))


@pytest.fixture
def reranking(tmp_path: Path) -> RunConfig:
    given = {"finetune": {"method": "dpo", "epochs": 3, "batch_size": 16}, "engine": {"adapter": "somebody/adapter"}}
    return override(RunConfig(run_dir=tmp_path, train_reranker="llm", reads=("index=index", "format=mine/format")), given)


def test_it_learns_from_the_model_itself_in_a_folder_of_its_own_with_its_own_options_above_the_others(
    reranking: RunConfig,
) -> None:
    training = build_reranker_training(reranking, PROCESS)
    assert training.format.formats == ("relevance",)
    assert (training.finetune.method, training.finetune.epochs, training.finetune.batch_size) == ("rerank", 1, 16)
    assert (training.scope, training.engine.adapter) == ("reranker", "")
    assert training.reads == ("index=index", "process=rounds/1/process")
    scoped = reranking.model_copy(update={"scope": "second"})
    assert build_reranker_training(scoped, Address("process", scope="second")).scope == "second/reranker"
    small = build_reranker_training(override(reranking, {"train_reranker": "cross_encoder"}), PROCESS)
    assert (small.finetune.method, small.finetune.batch_size, small.finetune.learning_rate) == ("cross_encoder", 8, 1e-4)
    quantised = override(reranking, {"finetune": {"quantization": "nf4", "lora": {"use_rslora": True}}})
    assert build_reranker_training(quantised, PROCESS).finetune.quantization == "nf4"
    beside = build_reranker_training(override(quantised, {"train_reranker": "cross_encoder"}), PROCESS).finetune
    assert (beside.quantization, beside.lora) == ("none", {})
    of_policy = override(reranking, {"finetune": {"data": "mine.jsonl", "validation_data": "held_out.jsonl"}})
    assert (build_reranker_training(of_policy, PROCESS).finetune.data, of_policy.finetune.data) == ("", "mine.jsonl")
    own = {"finetune": {"epochs": 2, "limit": 500}, "format": {"relevance_pages": 2}}
    training = build_reranker_training(reranking.model_copy(update={"reranker": own}), PROCESS)
    assert (training.finetune.epochs, training.finetune.limit, training.finetune.method) == (2, 500, "rerank")
    assert (training.format.relevance_pages, training.format.formats) == (2, ("relevance",))


def test_it_is_evaluated_beside_what_else_is_compared(reranking: RunConfig, tmp_path: Path) -> None:
    settings = build_reranked_evaluation(reranking).evaluate
    assert settings.baselines == ("question", "rerank")
    assert settings.take(RerankedConfig).model == str(tmp_path / "reranker/finetune/adapter")
    small = override(reranking, {"train_reranker": "cross_encoder"})
    assert build_reranked_evaluation(small).evaluate.take(RerankedConfig).model == str(tmp_path / "reranker/finetune/encoder")
    ordered = reranking.model_copy(update={"evaluate": EvaluateConfig(baselines=("rerank", "rm3"))})
    assert build_reranked_evaluation(ordered).evaluate.baselines == ("rerank", "rm3")


def test_an_embedder_comes_before_the_rows_and_the_evaluation_that_search_by_its_vectors(reranking: RunConfig) -> None:
    given = {"train_embedder": True, "embedding": {"model": "somebody/embedder"}, "evaluate": {"baselines": ["hybrid", "rm3"]}}
    rankers = plan_rankers(override(reranking, given), PROCESS)
    (stages, embedder), (_, reranker) = rankers.trainings
    assert [stage.name for stage in stages] == ["format", "finetune", "embed"]
    assert (embedder.scope, embedder.finetune.method, embedder.format.formats) == ("embedder", "embed", ("relevance",))
    # Its own rows are never drawn by what is trained on them.
    assert embedder.reads == ("index=index", "embed=embed", "process=rounds/1/process")
    assert (reranker.scope, reranker.reads[-2:]) == ("reranker", ("embed=embedder/embed", "process=rounds/1/process"))
    assert rankers.compared.reads[-1] == "embed=embedder/embed"
    beside = ("dense", "index_hybrid", "index_dense", "rerank")
    assert rankers.compared.evaluate.baselines == ("hybrid", "rm3", *beside)
    without = override(reranking, {"train_embedder": True, "train_reranker": ""})
    assert plan_rankers(without, PROCESS).compared.evaluate.baselines == ("question", "dense")
    assert build_round(reranking, 2).reads[-1] == "embed=embed"


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"train_embedder": True, "embedder": {"finetunes": {}}}, "embedder: unknown key 'finetunes'"),
        (
            {"train_embedder": True, "embedder": {"finetune": {"method": "dpo"}}},
            "embedder: finetune.method dpo is not what train_embedder trains",
        ),
        (
            {"train_embedder": True, "embedder": {"finetune": {"embed": {"max_tokens": 128}}}},
            r"embedding.window_tokens 256: .* reads 128 tokens at once .*\{embedding = \{window_tokens = 128\}\}",
        ),
        ({"reranker": {"finetunes": {}}}, "reranker: unknown key 'finetunes'"),
        ({"reranker": {"finetune": {"method": "sft"}}}, "reranker: finetune.method sft is not what train_reranker llm trains"),
        ({"evaluate": {"rerank": {"model": "another"}}}, "evaluate.rerank.model 'another': the pipeline trains one itself"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is(tmp_path: Path, rounds: int, options: dict, said: str) -> None:
    run = run_rounds if rounds else run_pass
    with pytest.raises(ConfigError, match=said):
        run(override(RunConfig(run_dir=tmp_path, rounds=rounds, train_reranker="llm"), options))
    assert not list(tmp_path.iterdir())
