import json

import pytest
from factories import asked_at, build_answer, build_call, build_search, build_trajectory, build_turn

from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.rl_steps import build_rows


def test_every_reply_is_a_step_word_for_word_with_its_reward(process) -> None:
    drawn = {"completion_token_ids": (7, 8), "completion_logprobs": (-0.5, -0.25)}
    search = build_search("a", 1, raw_text="Hm. <search>a</search>", **drawn)
    trajectory = build_trajectory(build_turn(), search, build_answer())
    rows = build_rows(process(trajectory), FormatConfig()).to_dicts()
    messages = json.loads(trajectory.messages)
    assert [row["prompt"] for row in rows] == [messages[:2], messages[:4], messages[:6]]
    assert [row["completion"] for row in rows] == [messages[2:3], messages[4:5], messages[6:7]]
    assert [row["reward"] for row in rows] == pytest.approx([-0.2, 1.0, 0.0])
    assert [row["trajectory_reward"] for row in rows] == pytest.approx([0.8] * 3)
    assert [(row["step"], row["num_steps"]) for row in rows] == [(1, 3), (2, 3), (3, 3)]
    assert [row["completion_token_ids"] for row in rows] == [[4, 5], [7, 8], [4, 5]]
    assert [row["completion_logprobs"] for row in rows] == [[], [-0.5, -0.25], []]
    assert {row["advantage"] for row in rows} == {0.0}  # nothing to compare it with


def test_a_step_has_the_temperature_of_its_preset_and_1_if_that_is_not_known(process) -> None:
    presets = ("default", "full", "diverse", "elsewhere")
    part = process(*(build_trajectory(build_search("a"), preset=preset, id=preset) for preset in presets))
    rows = build_rows(part, FormatConfig()).select("trajectory_id", "temperature").rows()
    assert dict(rows) == {"default": 0.7, "full": 1.0, "diverse": 0.9, "elsewhere": 1.0}


def test_dropped_replies_are_steps_too_but_a_search_that_did_not_run_is_none(process) -> None:
    part = process(build_trajectory(build_search("cut", finish_reason="length"), build_search("x", error="gone", hits=())))
    assert build_rows(part, FormatConfig())["step"].to_list() == [1]


def list_advantages(part) -> dict[tuple[str, int], float]:
    rows = build_rows(part, FormatConfig()).select("trajectory_id", "step", "advantage").rows()
    return {(name, step): advantage for name, step, advantage in rows}


def test_in_find_page_what_a_reply_and_those_after_it_earn_is_compared_where_rollouts_are_in_the_same_state(process) -> None:
    part = process(
        build_trajectory(build_search("a", 1), build_answer(), sample_index=0, **asked_at(2)),
        build_trajectory(build_search("b", 2), build_search("c", 1), sample_index=1, **asked_at(2)),
        build_trajectory(build_search("d"), sample_index=2, **asked_at(2)),
        build_trajectory(build_turn(), sample_index=3, **asked_at(2)),
    )
    # From the opening on they earn .3691 + 0, 0 + .3691 - .05, -.6309 and -.2. Each later state is of one alone.
    expected = {("q1-0", 1): 0.4048, ("q1-1", 1): 0.3548, ("q1-2", 1): -0.5952, ("q1-3", 1): -0.1643}
    expected |= {("q1-0", 2): 0.0, ("q1-1", 2): 0.0}
    assert list_advantages(part) == pytest.approx(expected, abs=1e-4)


def test_in_find_page_later_searches_after_the_same_first_one_are_compared(process) -> None:
    later = [build_search("c", 1), build_search("d"), build_search("e", 3)]
    same = [build_trajectory(build_search("b"), search, sample_index=index) for index, search in enumerate(later)]
    other = build_trajectory(build_search("f", 1), build_search("g"), sample_index=3)  # its second search has nothing to improve
    # After "b" they earn 1, 0 and .5, each less the .05 of a later search; "f" and "g" 1 - .05 together.
    second = {"q1-0": 0.5, "q1-1": -0.5, "q1-2": 0.0, "q1-3": 0.0}
    first = {"q1-0": 0.375, "q1-1": -0.625, "q1-2": -0.125, "q1-3": 0.375}
    advantages = list_advantages(process(*same, other))
    assert {name: advantage for (name, step), advantage in advantages.items() if step == 2} == pytest.approx(second)
    assert {name: advantage for (name, step), advantage in advantages.items() if step == 1} == pytest.approx(first)


def test_in_find_page_a_call_has_what_the_search_after_it_gained_also_one_that_failed(process) -> None:
    calls = (build_call(), build_call(tool_error="no such page"))
    called = [build_trajectory(call, build_search("a", 1), sample_index=index) for index, call in enumerate(calls)]
    advantages = list_advantages(process(*called, build_trajectory(build_search("b"), sample_index=2)))
    assert advantages == pytest.approx(
        {("q1-0", 1): 1 / 3, ("q1-1", 1): 1 / 3, ("q1-2", 1): -2 / 3, ("q1-0", 2): 0, ("q1-1", 2): 0}
    )


def test_in_find_page_answers_that_count_are_something_to_learn_from(process) -> None:
    right, wrong = (build_trajectory(build_answer(said), sample_index=index) for index, said in enumerate(("340 rpm", "fuel")))
    assert list_advantages(process(right, wrong, answer_weight=0.5)) == pytest.approx({("q1-0", 1): 0.25, ("q1-1", 1): -0.25})


def test_a_group_whose_searches_are_all_worth_the_same_has_no_advantage(process) -> None:
    part = process(
        build_trajectory(build_search("a", 2), sample_index=0, **asked_at(2)),
        build_trajectory(build_search("a a a", 2), sample_index=1, **asked_at(2)),
        build_trajectory(build_search("b"), question_id="q2", id="q2-0", sample_index=0, **asked_at(None)),
        build_trajectory(build_turn(), question_id="q2", id="q2-1", sample_index=1, **asked_at(None)),
    )
    assert build_rows(part, FormatConfig())["reward"].n_unique() > 2
    assert set(list_advantages(part).values()) == {0.0}


def test_replies_to_another_opening_are_no_steps_and_in_no_mean(process) -> None:
    part = process(
        build_trajectory(build_search("a", 1), sample_index=0),
        build_trajectory(build_search("b"), sample_index=1),
        build_trajectory(build_search("c", 2), sample_index=2, prompt_set=1),
    )
    assert list_advantages(part) == pytest.approx({("q1-0", 1): 0.5, ("q1-1", 1): -0.5})
