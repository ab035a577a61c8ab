import json

import pytest
from factories import build_answer, build_search, build_trajectory, build_turn

from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.rl_steps import build_rows


def test_every_reply_is_a_step_word_for_word_with_its_reward(process) -> None:
    trajectory = build_trajectory(build_turn(), build_search("a", 1, raw_text="Hm. <search>a</search>"), build_answer())
    rows = build_rows(process(trajectory), FormatConfig()).to_dicts()
    messages = json.loads(trajectory.messages)
    assert [row["prompt"] for row in rows] == [messages[:2], messages[:4], messages[:6]]
    assert [row["completion"] for row in rows] == [messages[2:3], messages[4:5], messages[6:7]]
    assert [row["reward"] for row in rows] == pytest.approx([0.0, 1.0, 0.3])
    assert [row["trajectory_reward"] for row in rows] == pytest.approx([0.3 * 2 / 3 + 0.7] * 3)
    assert [(row["step"], row["num_steps"]) for row in rows] == [(1, 3), (2, 3), (3, 3)]
    assert [row["completion_token_ids"] for row in rows] == [list(turn.completion_token_ids) for turn in trajectory.turns]
    assert {row["advantage"] for row in rows} == {0.0}  # nothing to compare it with


def test_dropped_replies_are_steps_too_but_a_search_that_did_not_run_is_none(process) -> None:
    part = process(build_trajectory(build_search("cut", finish_reason="length"), build_search("x", error="gone", hits=())))
    assert build_rows(part, FormatConfig())["step"].to_list() == [1]


def test_the_advantage_of_a_trajectory_is_over_the_others_of_its_question_and_all_of_its_steps_have_it(process) -> None:
    part = process(
        build_trajectory(build_search("a", 1), build_answer(), id="q1-0", sample_index=0),
        build_trajectory(build_search("b"), id="q1-1", sample_index=1),
        build_trajectory(build_search("c"), id="q1-2", sample_index=2),
        build_trajectory(build_search("d", 1), id="q2-0", question_id="q2", sample_index=0),
        build_trajectory(build_search("e", 1), id="q2-1", question_id="q2", sample_index=1),
    )
    advantages = build_rows(part, FormatConfig()).select("trajectory_id", "advantage").rows()
    # rewards of q1: 1, 0.3 and 0.3; of q2: twice 1
    expected = {"q1-0": 2 / 3**0.5, "q1-1": -1 / 3**0.5, "q1-2": -1 / 3**0.5, "q2-0": 0.0, "q2-1": 0.0}
    assert [name for name, _ in advantages] == ["q1-0", "q1-0", "q1-1", "q1-2", "q2-0", "q2-1"]
    assert dict(advantages) == pytest.approx(expected)
