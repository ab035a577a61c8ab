import json

import pytest
from factories import build_answer, build_question, build_search, build_trajectory, build_turn

from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.rejection import build_rows


def test_the_whole_conversation_is_taught_with_its_answer_but_not_what_could_not_be_read(process) -> None:
    trajectory = build_trajectory(build_search("wide"), build_turn(), build_search("good", 1), build_answer())
    (row,) = build_rows(process(trajectory), FormatConfig()).to_dicts()
    assert row["messages"] == json.loads(trajectory.messages)
    assert row["num_prompt_messages"] == 2
    assert row["train_turns"] == [True, False, True, True]


def test_only_successes_that_differ_in_their_queries_count_the_best_first(process) -> None:
    part = process(
        build_trajectory(build_search("misses")),
        build_trajectory(build_search("late"), build_search("hit", 1), sample_index=1),
        build_trajectory(build_search("hit", 1), sample_index=2),
        build_trajectory(build_search("hit", 1), sample_index=3),
        build_trajectory(build_search("near", 3), sample_index=4),
    )
    rows = build_rows(part, FormatConfig()).to_dicts()
    assert [row["trajectory_id"] for row in rows] == ["q1-2", "q1-1", "q1-4"]
    assert [row["score"] for row in rows] == pytest.approx([1.0, 1.0, 1 / 3])
    assert build_rows(part, FormatConfig(max_searches_per_question=2, min_rank_score=0.5)).height == 2


def test_the_rows_of_each_question_weigh_the_same_together(process) -> None:
    other = build_question(id="q2")
    part = process(
        *(build_trajectory(build_search(f"hit {index}", 1), sample_index=index) for index in range(3)),
        build_trajectory(build_search("hit", 1), question=other),
    )
    rows = build_rows(part, FormatConfig())
    assert rows.group_by("question_id", maintain_order=True).agg("weight").rows() == [("q1", [1 / 3] * 3), ("q2", [1.0])]


def test_a_cut_reply_is_context_and_a_conversation_of_nothing_else_is_left_out(process) -> None:
    part = process(
        build_trajectory(build_search("cut", 1, finish_reason="length"), build_search("good", 1)),
        build_trajectory(build_search("cut", 1, finish_reason="length"), sample_index=1),
    )
    (row,) = build_rows(part, FormatConfig()).to_dicts()
    assert row["train_turns"] == [False, True]
