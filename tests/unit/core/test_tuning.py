"""What a pipeline takes of the choice of a search: plain options, where the run has not set them itself."""

from pathlib import Path
from typing import Any

import pytest

from drag_ray.baselines.rerank import RerankedConfig
from drag_ray.config import build
from drag_ray.errors import DamageError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.tuning import take_choice
from drag_ray.tune.outcome import CHOICE_NAME, read_options, write_arguments

CHOSEN = {
    "agent": {"retrieval": "dense", "question_words": "all", "dense_weight": 0.35},
    "format": {"relevance_retrieval": "hybrid"},
    "evaluate": {"rerank": {"retrieval": "hybrid"}},
}


def take(options: dict[str, Any], chosen: dict[str, Any] = CHOSEN) -> tuple[tuple[Any, ...], str, RunConfig]:
    """What the five options are then, what is said, and the options of the run."""
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
