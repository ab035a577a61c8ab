"""The choice of a search in a pipeline: plain options, where the run has not set them itself."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drag_ray.api.run import Run, open_run
from drag_ray.baselines.rerank import RerankedConfig
from drag_ray.config import build
from drag_ray.errors import ConfigError, DamageError
from drag_ray.pipeline import runner
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.stages import Stage
from drag_ray.pipeline.tuning import take_choice, tune_search
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import write_json
from drag_ray.tune.choice_folder import CHOICE_NAME, read_options, write_arguments

CHOSEN = {
    "agent": {"retrieval": "dense", "question_words": "all", "dense_weight": 0.35},
    "format": {"relevance_retrieval": "hybrid"},
    "evaluate": {"rerank": {"retrieval": "hybrid"}},
}


def take(options: dict[str, Any], chosen: dict[str, Any] = CHOSEN) -> tuple[tuple[Any, ...], str, RunConfig]:
    """The five options after the choice, the message, and the options of the run."""
    config, said = take_choice(build(RunConfig, {"tune_search": True, **options}), chosen)
    agent = config.agent
    found = (agent.retrieval, agent.question_words, agent.dense_weight, config.format.relevance_retrieval)
    return (*found, config.evaluate.take(RerankedConfig).retrieval), said, config


def test_what_is_chosen_is_taken_as_plain_options_and_said() -> None:
    found, said, config = take({})
    assert found == ("dense", "all", 0.35, "hybrid", "hybrid")
    assert not config.tune_search
    assert said == (
        "takes agent.retrieval='dense' agent.question_words='all' agent.dense_weight=0.35 format.relevance_retrieval='hybrid' "
        "evaluate.rerank.retrieval='hybrid'."
    )


def test_what_the_run_has_set_stays_even_if_it_is_the_default() -> None:
    given = {"agent": {"retrieval": "bm25", "dense_weight": 0.5}, "evaluate": {"rerank": {"retrieval": "bm25", "depth": 20}}}
    found, _, config = take(given)
    assert found == ("bm25", "all", 0.5, "hybrid", "bm25")
    assert config.evaluate.take(RerankedConfig).depth == 20


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"evaluate": {"question_weights": [1, 2]}}, "evaluate.question_weights"),
        ({"collect": {"proposals": ["rm3"]}}, "collect.proposals"),
        ({"rounds": 2, "curriculum": [{}, {"collect": {"proposals": ["rm3"]}}]}, "collect.proposals"),
    ],
)
def test_an_agent_searches_by_words_where_the_run_asks_for_what_needs_them(options: dict[str, Any], said: str) -> None:
    found, sentence, _ = take(options)
    assert found == ("bm25", "all", 0.35, "hybrid", "hybrid")
    assert f"agent.retrieval stays 'bm25': {said}: " in sentence


def test_where_nothing_was_chosen_all_stays() -> None:
    assert take({}, {})[:2] == (("bm25", "key", None, "bm25", "bm25"), "the search stays as it is configured.")
    as_it_is = {"agent": {"retrieval": "bm25", "question_words": "key"}}
    assert take({}, as_it_is)[1] == "the search stays as it is configured."


@pytest.mark.parametrize("rounds", [0, 1])
def test_stages_after_the_choice_run_with_it_and_are_skipped_when_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    ran: list[tuple[str, str, str]] = []

    def run_code(stage: Stage, config: RunConfig, folder: StageFolder) -> dict[str, Any]:
        ran.append((stage.name, config.agent.retrieval, config.format.relevance_retrieval))
        if stage.name == "tune":
            write_json(folder.path / CHOICE_NAME, {"options": CHOSEN})
        return {}

    monkeypatch.setattr(runner, "run_code", run_code)
    monkeypatch.setattr(Run, "_start_ray", lambda self: None)
    best = SimpleNamespace(number=1, chosen_by="mrr")
    made = {
        "read_results": {},
        "read_side": set(),
        "compare_rounds": [],
        "format_history": "",
        "choose_best": best,
    }
    for name, value in made.items():
        monkeypatch.setattr(f"drag_ray.pipeline.rounds.{name}", lambda *given, value=value: value)
    run = open_run(tmp_path, tune_search=True, rounds=rounds, rollout={"keep_engines": False})
    manifests = run.pipeline()
    assert ran[:2] == [("index", "bm25", "bm25"), ("tune", "bm25", "bm25")]
    assert set(ran[2:]) == {(name, "dense", "hybrid") for name in ("collect", "process", "format", "finetune", "evaluate")}
    assert list(manifests)[:2] == ["index", "tune"]
    num_ran = len(ran)
    run.pipeline()
    assert len(ran) == num_ran


def test_what_cannot_be_run_is_refused_before_a_search_is_chosen(tmp_path: Path) -> None:
    options: dict[str, Any] = {"run_dir": tmp_path, "tune_search": True, "rounds": 2}
    for wrong, said in (
        ({"curriculum": [{}, {"collect": {"limits": 3}}]}, "curriculum, entry 2"),
        ({"train_reranker": "llm", "evaluate": {"rerank": {"model": "elsewhere"}}}, "the pipeline trains one itself"),
    ):
        with pytest.raises(ConfigError, match=said):
            tune_search(build(RunConfig, options | wrong))
    assert not list(tmp_path.iterdir())


def test_a_choice_is_written_as_arguments_and_one_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert write_arguments(CHOSEN) == [
        *("--agent.retrieval dense", "--agent.question-words all", "--agent.dense-weight 0.35"),
        *("--format.relevance-retrieval hybrid", "--evaluate.rerank.retrieval hybrid"),
    ]
    for text in (None, "{", "[]", "{}", '{"options": 3}'):
        if text is not None:
            (tmp_path / CHOICE_NAME).write_text(text)
        with pytest.raises(DamageError, match=r"not the choice of a search.*jobs/tune\.py"):
            read_options(tmp_path)
