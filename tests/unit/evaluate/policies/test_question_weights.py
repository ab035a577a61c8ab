"""The weight of the question that a policy gets, found by searching anew for what its replies added."""

from typing import Any

import pytest
from factories import build_question, build_search, build_trajectory
from small_index import index_texts

from drag_ray.agent.config import AgentConfig
from drag_ray.errors import ConfigError
from drag_ray.evaluate.asked_questions import check_weighable
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.evaluate.policies.retriever_rescoring import apply_found_weights, find_question_weight, weigh_question
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Question, Trajectory

TEXTS = ["rotor speed limits", "rotor rotor overhaul", "tail boom bolts", "speed over sound", "boom microphones and sound"]
"""Pages 1 to 5."""
LIGHT, HEAVY = 0.25, 8.0


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    return index_texts(tmp_path_factory.mktemp("index"), TEXTS, "a.pdf")


def ask(name: str, evidence_page: int) -> Question:
    return build_question(id=name, question="rotor", evidence=(Evidence("a.pdf", evidence_page),))


def expand(question: Question, addition: str | None, weight: float = 1.0, **fields: Any) -> Trajectory:
    """A rollout that added some words, or left it at the question."""
    turns = [] if addition is None else [build_search(addition, evidence_rank=None, hits=())]
    return build_trajectory(*turns, question=question, query_mode="expand", question_weight=weight, question_rank=1, **fields)


def rank_of(trajectory: Trajectory) -> int | None:
    return trajectory.turns[0].ranking.evidence_rank


def test_the_search_is_made_anew_with_the_weight_and_all_else_stays(index: Searcher) -> None:
    rollout = expand(ask("q", 3), "boom")
    light, heavy = (weigh_question(rollout, weight, index) for weight in (LIGHT, HEAVY))
    assert light.turns[0].ranking.hits == tuple(index.search_expanded("rotor", "boom", LIGHT, rollout.depth))
    assert (rank_of(light), light.turns[0].ranking.rank_score > 0, light.question_search.weight) == (1, True, LIGHT)
    assert rank_of(heavy) == 3
    assert light.turns[0].query == "boom"
    assert light.messages == rollout.messages


def test_the_search_made_anew_is_of_the_words_that_were_searched(index: Searcher) -> None:
    question = build_question(id="q", question="What is over a rotor?", evidence=(Evidence("a.pdf", 3),))
    again = weigh_question(expand(question, "boom", question_words="key"), LIGHT, index)
    assert again.turns[0].ranking.hits == tuple(index.search_expanded("rotor", "boom", LIGHT, again.depth))
    assert again.turns[0].ranking.hits != tuple(index.search_expanded(question.question, "boom", LIGHT, again.depth))


def test_each_policy_gets_the_weight_that_finds_most_of_its_validation_questions(index: Searcher) -> None:
    validation, test = [ask("v1", 3), ask("v2", 3), ask("v3", 1)], [ask("t", 3)]
    asked = [*test, *validation]
    rollouts = {
        "writes_well": [expand(question, "boom") for question in asked],
        "writes_badly": [expand(ask(question.id, 2), "sound") for question in asked],
        "writes_nothing": [expand(question, None) for question in asked],
        "rewrites": [build_trajectory(build_search("boom", evidence_rank=4), question=question) for question in asked],
    }
    kept, found = apply_found_weights(rollouts, validation, [LIGHT, HEAVY], index)
    assert {policy: weight.weight for policy, weight in found.items()} == {"writes_well": LIGHT, "writes_badly": HEAVY}
    # The evidence of v1 and v2 is first with the light weight and third with the heavy one, that of v3 the other way round.
    assert found["writes_well"].mrr == pytest.approx({LIGHT: (1 + 1 + 1 / 4) / 3, HEAVY: (1 / 3 + 1 / 3 + 1 / 2) / 3})
    assert found["writes_well"].num_questions == 3
    assert [trajectory.question_id for trajectory in kept["writes_well"]] == ["t"]
    assert kept["writes_well"][0].question_search.weight == LIGHT
    assert kept["rewrites"] == rollouts["rewrites"][:1]
    assert kept["writes_nothing"] == rollouts["writes_nothing"][:1]


def test_of_equal_weights_the_question_gets_the_highest(index: Searcher) -> None:
    found = find_question_weight([expand(ask("v", 2), "unheard")], [2.0, 8.0, 4.0], index)
    assert found
    assert found.weight == 8.0


def test_nothing_is_changed_without_validation_questions(index: Searcher) -> None:
    rollouts = {"tuned": [expand(ask("t", 3), "boom")]}
    assert apply_found_weights(rollouts, [], [], index) == (rollouts, {})


@pytest.mark.parametrize(
    ("settings", "agent", "problem"),
    [
        ({}, {"query_mode": "rewrite", "max_iterations": 1}, r"agent\.query_mode 'expand'.*got 'rewrite' with 1"),
        ({}, {"query_mode": "expand", "max_iterations": 2}, r"got 'expand' with 2"),
        ({"split": "validation"}, {"query_mode": "expand", "max_iterations": 1}, r"evaluate\.split to 'test'"),
    ],
)
def test_weights_that_could_not_be_found_are_refused(settings: Any, agent: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_weighable(EvaluateConfig(question_weights=(1, 2), **settings), AgentConfig(**agent))
    assert not check_weighable(EvaluateConfig(**settings), AgentConfig(**agent))
