import json

import pytest
from factories import asked_at, build_search, build_trajectory

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.sft_context import build_rows

RENDER = get_protocol("tags").render_search


def test_a_recovery_is_taught_from_its_own_prefix_with_its_reasoning(process) -> None:
    trajectory = build_trajectory(build_search("fails"), build_search("finds", 2, reasoning="Other words."))
    (row,) = build_rows(process(trajectory), FormatConfig()).to_dicts()
    assert row["prompt"] == json.loads(trajectory.messages)[:4]
    assert row["completion"] == [{"role": "assistant", "content": RENDER("finds", "Other words.")}]


def test_a_second_failure_is_taught_the_best_query_of_another_sample(process) -> None:
    stuck = build_trajectory(build_search("fails"), build_search("fails too", reasoning="Hm."))
    solved = build_trajectory(build_search("good", 2), build_search("best", 1), sample_index=1)
    (row,) = build_rows(process(stuck, solved), FormatConfig()).to_dicts()
    assert row["prompt"] == json.loads(stuck.messages)[:4]
    assert row["completion"] == [{"role": "assistant", "content": RENDER("best")}]
    assert row["score"] == 1.0


def test_states_after_a_success_or_before_any_search_are_not_used(process) -> None:
    tables = process(build_trajectory(build_search("a", 3), build_search("b", 1)))
    assert build_rows(tables, FormatConfig()).to_dicts() == []


def test_a_search_that_could_not_run_is_no_failed_query(process) -> None:
    tables = process(build_trajectory(build_search("a", error="index is gone", hits=()), build_search("b", 1)))
    assert build_rows(tables, FormatConfig()).to_dicts() == []


def test_an_unsolved_question_gives_no_row(process) -> None:
    assert build_rows(process(build_trajectory(build_search("a"), build_search("b"))), FormatConfig()).to_dicts() == []


def test_the_policys_own_recoveries_come_first_within_the_limit(process) -> None:
    tables = process(
        build_trajectory(build_search("a"), build_search("b"), build_search("c", 3)),
        build_trajectory(build_search("best", 1), sample_index=1),
    )
    (row,) = build_rows(tables, FormatConfig(max_searches_per_question=1)).to_dicts()
    assert row["completion"][0]["content"] == RENDER("c")


def test_a_later_query_that_does_not_beat_the_question_is_replaced_by_the_best_one(process) -> None:
    tables = process(
        build_trajectory(build_search("a"), build_search("finds less", 3, reasoning="Hm."), **asked_at(2)),
        build_trajectory(build_search("best", 1), sample_index=1, id="x", baseline="rm3", **asked_at(2)),
    )
    (row,) = build_rows(tables, FormatConfig()).to_dicts()
    assert (row["completion"][0]["content"], row["trajectory_id"]) == (RENDER("best"), "q1-0")
    assert row["score"] == pytest.approx(0.3691, abs=1e-4)
