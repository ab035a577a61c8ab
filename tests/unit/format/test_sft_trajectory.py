import json

from factories import asked_at, build_answer, build_search, build_trajectory, build_turn

from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.sft_trajectory import build_rows


def test_the_conversation_ends_with_the_best_query_and_trains_successes_alone(process) -> None:
    trajectory = build_trajectory(
        build_search("fails"),
        build_turn(),
        build_search("third", 3),
        build_search("best", 1),
        build_search("late", 1),
        build_answer(),
    )
    (row,) = build_rows(process(trajectory), FormatConfig()).to_dicts()
    assert row["messages"] == json.loads(trajectory.messages)[:9]
    assert row["messages"][-1]["content"] == "<search>best</search>"
    assert row["num_prompt_messages"] == 2
    assert row["train_turns"] == [False, False, True, True]
    assert row["score"] == 1.0


def test_trajectories_that_do_not_beat_their_question_give_no_row(process) -> None:
    part = process(build_trajectory(build_search("a"), build_search("b", 4), **asked_at(4)))
    assert build_rows(part, FormatConfig()).to_dicts() == []


def test_only_searches_that_beat_the_question_and_all_before_are_taught(process) -> None:
    ranks = {"same": 3, "better": 2, "worse": 5, "as good": 2, "best": 1}
    part = process(build_trajectory(*(build_search(query, rank) for query, rank in ranks.items()), **asked_at(3)))
    (row,) = build_rows(part, FormatConfig()).to_dicts()
    assert row["train_turns"] == [False, True, False, False, True]
    assert (row["score"], row["weight"]) == (0.5, 0.5)


def test_samples_with_the_same_best_query_give_one_row_the_shortest(process) -> None:
    tables = process(
        build_trajectory(build_search("x"), build_search("best", 1)),
        build_trajectory(build_search("best", 1), sample_index=1),
    )
    (row,) = build_rows(tables, FormatConfig()).to_dicts()
    assert row["trajectory_id"] == "q1-1"


def test_a_search_that_adds_too_little_is_context_and_not_taught(process) -> None:
    tables = process(build_trajectory(build_search("low", 5), build_search("high", 1)))
    (row,) = build_rows(tables, FormatConfig(min_gain=0.4)).to_dicts()  # they add .39 and .61
    assert row["train_turns"] == [False, True]
