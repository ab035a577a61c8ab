import json

from factories import ask_for_answer, asked_at, build_answer, build_question, build_search, build_trajectory, build_turn

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
    assert [row["score"] for row in rows] == [1.0, 1.0, 0.5]
    assert build_rows(part, FormatConfig(max_searches_per_question=2, min_gain=0.5)).height == 2


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


def test_conversations_that_do_not_beat_their_question_are_left_out(process) -> None:
    part = process(
        build_trajectory(build_search("same", 2), build_answer(), **asked_at(2)),
        build_trajectory(build_search("better", 1), build_answer(), sample_index=1, **asked_at(2)),
    )
    assert build_rows(part, FormatConfig())["trajectory_id"].to_list() == ["q1-1"]
    assert build_rows(part, FormatConfig(min_gain=0.4)).is_empty()


def test_a_search_in_place_of_the_answer_is_no_success(process) -> None:
    part = process(
        ask_for_answer(build_trajectory(build_search("a"), build_search("late", 1))),
        ask_for_answer(build_trajectory(build_search("good", 1), build_search("late", 1), sample_index=1)),
    )
    (row,) = build_rows(part, FormatConfig()).to_dicts()
    assert (row["trajectory_id"], row["train_turns"]) == ("q1-1", [True, False])


def test_what_baselines_proposed_is_no_conversation_of_the_policy(process) -> None:
    part = process(build_trajectory(build_search("own", 2)), build_trajectory(build_search("theirs", 1), id="x", baseline="rm3"))
    assert build_rows(part.own, FormatConfig())["trajectory_id"].to_list() == ["q1-0"]
