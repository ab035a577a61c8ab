import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from factories import build_answer, build_question, build_search, build_trajectory, build_turn

from drag_ray.format.tables import ScoredPart
from drag_ray.types import Trajectory


@pytest.fixture
def process(process: Callable[..., ScoredPart]):
    """Scored turns, and trajectories."""

    def process_records(*records: Trajectory, **options: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
        part = process(*records, **options)
        return part.turns, part.trajectories

    return process_records


def test_each_turn_becomes_a_row_with_what_the_model_wrote(process) -> None:
    turns, _ = process(build_trajectory(build_search("a"), build_turn(), build_search("b", 2), build_answer()))
    assert turns.select("action", "query", "step", "num_prompt_messages", "evidence_rank", "num_hits").rows() == [
        ("search", "a", 1, 2, None, 10),
        ("invalid", "", 2, 4, None, 0),
        ("search", "b", 3, 6, 2, 10),
        ("answer", "", 4, 8, None, 0),
    ]
    assert turns["rank_score"].to_list() == pytest.approx([0.0, 0.0, 2 / 3, 0.0])
    assert turns["reply"].to_list() == [
        "<search>a</search>",
        "I do not know.",
        "<search>b</search>",
        "<answer>340 rpm</answer>",
    ]


def test_rows_are_in_the_order_of_questions_samples_and_steps_and_a_failed_search_is_no_effort(process) -> None:
    records = [build_trajectory(build_search("a"), build_search("b"), sample_index=index) for index in (2, 0, 1)]
    turns, trajectories = process(*records, build_trajectory(build_search("c"), question=build_question(id="q0")))
    assert trajectories["trajectory_id"].to_list() == ["q0-0", "q1-0", "q1-1", "q1-2"]
    assert turns["query"].to_list() == ["c", "a", "b", "a", "b", "a", "b"]
    _, trajectories = process(build_trajectory(build_search("a", error="index is gone", hits=()), build_search("b", 1)))
    assert trajectories.select("num_searches", "cumulative_effort", "first_success_step").row(0) == (1, 1.0, 2)


def test_states_are_equal_exactly_where_the_prefixes_are_and_in_order(process) -> None:
    first, second = (
        build_trajectory(build_search("a"), build_search("b"), build_answer()),
        build_trajectory(build_search("a"), build_search("c"), build_answer(), sample_index=1),
    )
    states = process(first, second)[0]["state"].to_list()
    assert states[0] == states[3]
    assert states[1] == states[4]
    assert len(set(states)) == 4
    messages = json.loads(build_trajectory(build_search("a")).messages)
    swapped = json.dumps([messages[1], messages[0], messages[2]])
    turns, _ = process(build_trajectory(build_search("a")), build_trajectory(build_search("a"), sample_index=1, messages=swapped))
    assert turns["state"].n_unique() == 2


def test_flags_say_what_was_wrong_with_a_search_within_its_sample(process) -> None:
    searches, _ = process(
        build_trajectory(
            build_search("rotor  speed"),
            build_search(" rotor speed\n"),
            build_search("Rotor speed", finish_reason="length"),
            build_search("x", error="index is gone", hits=()),
        )
    )
    assert searches["is_repeated"].to_list() == [False, True, False, False]
    assert searches["is_truncated"].to_list() == [False, False, True, False]
    assert searches["has_error"].to_list() == [False, False, False, True]
    searches, _ = process(build_trajectory(build_search("a")), build_trajectory(build_search("a"), sample_index=1))
    assert not searches["is_repeated"].any()


def test_the_best_search_is_the_earliest_of_the_highest_rank_score(process) -> None:
    _, trajectories = process(
        build_trajectory(build_search("a"), build_search("b", 2), build_search("c", 1), build_search("d", 1), build_answer())
    )
    outcome = trajectories.row(0, named=True)
    assert (outcome["best_query"], outcome["best_step"], outcome["best_rank"]) == ("c", 3, 1)
    assert outcome["first_success_step"] == 2
    # Position 3 * 1 + 2 = 5 of 12 pages.
    assert outcome["cumulative_effort"] == pytest.approx(1 - 4 / 12)


def test_evidence_below_the_shown_pages_is_a_success_only_where_more_are_scored(process) -> None:
    _, trajectories = process(build_trajectory(build_search("a", 4)))
    assert trajectories.select("valid", "best_step", "cumulative_effort").row(0) == (False, None, 0.0)
    searches, trajectories = process(build_trajectory(build_search("a", 4)), top_k=5)
    assert searches["rank_score"].to_list() == pytest.approx([0.4])
    assert trajectories["valid"].to_list() == [True]


def test_a_trajectory_without_searches_or_turns_keeps_its_row(process) -> None:
    _, trajectories = process(
        build_trajectory(build_answer()), build_trajectory(sample_index=1), build_trajectory(build_turn(), sample_index=2)
    )
    columns = ("trajectory_id", "num_turns", "num_invalid", "num_searches", "valid")
    assert trajectories.select(columns).rows() == [
        ("q1-0", 1, 0, 0, False),
        ("q1-1", 0, 0, 0, False),
        ("q1-2", 1, 1, 0, False),
    ]
