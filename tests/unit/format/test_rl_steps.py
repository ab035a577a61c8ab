import json

import pytest
from factories import build_answer, build_search, build_trajectory, build_turn

from drag_ray.format.config import FormatConfig
from drag_ray.format.rl_steps import build_rows


def test_every_reply_is_a_step_word_for_word_with_its_reward(process) -> None:
    trajectory = build_trajectory(build_turn(), build_search("a", 1, raw_text="Hm. <search>a</search>"), build_answer())
    rows = build_rows(process(trajectory), FormatConfig()).to_dicts()
    messages = json.loads(trajectory.messages)
    assert [row["prompt"] for row in rows] == [messages[:2], messages[:4], messages[:6]]
    assert [row["completion"] for row in rows] == [messages[2:3], messages[4:5], messages[6:7]]
    assert [row["reward"] for row in rows] == pytest.approx([0.0, 1.0, 0.3])
    assert [row["trajectory_reward"] for row in rows] == pytest.approx([0.3 * 2 / 3 + 0.7] * 3)
    assert [(row["step"], row["num_steps"]) for row in rows] == [(1, 3), (2, 3), (3, 3)]


def test_flawed_replies_are_steps_too_but_a_search_that_did_not_run_is_none(process) -> None:
    part = process(build_trajectory(build_search("cut", finish_reason="length"), build_search("x", error="gone", hits=())))
    assert build_rows(part, FormatConfig())["step"].to_list() == [1]
