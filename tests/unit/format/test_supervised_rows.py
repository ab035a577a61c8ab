"""Rows of supervised training: queries from the opening, recoveries from a failure, conversations; and what rows weigh."""

import json

import polars as pl
import pytest
from factories import ask_for_answer, asked_at, build_answer, build_question, build_search, build_trajectory, build_turn

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.format.config import FormatConfig
from drag_ray.format.rows import sft_context, sft_query, sft_trajectory
from drag_ray.format.rows.rejection import build_rows as build_whole_conversations
from drag_ray.format.rows.sft_context import build_rows as build_context_rows
from drag_ray.format.rows.sft_query import build_rows as build_query_rows
from drag_ray.format.rows.sft_trajectory import build_rows as build_conversation_rows
from drag_ray.format.selection import row_weight

RENDER = get_protocol("tags").render_search


def completions(rows: list[dict]) -> list[str]:
    return [row["completion"][0]["content"] for row in rows]


def test_best_distinct_queries_come_first_over_all_samples_and_turns(process) -> None:
    tables = process(
        build_trajectory(build_search("misses"), build_search("third", 3)),
        build_trajectory(build_search("second", 2), build_search("first", 1), sample_index=1),
        build_trajectory(build_search("second ", 2), sample_index=2),
    )
    rows = build_query_rows(tables, FormatConfig()).to_dicts()
    assert completions(rows) == [RENDER("first"), RENDER("second"), RENDER("third")]
    assert [round(row["score"], 2) for row in rows] == [1.0, 0.63, 0.5]


def test_the_prompt_is_the_opening_and_only_queries_that_beat_the_question_are_taught(process) -> None:
    trajectory = build_trajectory(build_search("misses"), build_search("finds", 1))
    (row,) = build_query_rows(process(trajectory), FormatConfig()).to_dicts()
    assert row["prompt"] == json.loads(trajectory.messages)[:2]
    ranks = {"first": 1, "second": 2, "third": 3, "none": None}
    part = process(*(build_trajectory(build_search(query, rank), **asked_at(2), id=query) for query, rank in ranks.items()))
    (row,) = build_query_rows(part, FormatConfig()).to_dicts()
    assert completions([row]) == [RENDER("first")]
    assert [row["score"], row["weight"]] == pytest.approx([0.3691, 0.3691], abs=1e-4)


def test_reasoning_is_kept_for_a_first_query_only(process) -> None:
    tables = process(
        build_trajectory(build_search("one", 1, reasoning="A manual gives limits."), build_search("two", 1, reasoning="So:"))
    )
    assert completions(build_query_rows(tables, FormatConfig()).to_dicts()) == [
        RENDER("one", "A manual gives limits."),
        RENDER("two"),
    ]
    assert completions(build_query_rows(tables, FormatConfig(include_reasoning=False)).to_dicts()) == [
        RENDER("one"),
        RENDER("two"),
    ]


def test_limits_apply_to_each_question(process) -> None:
    other = build_question(id="q2")
    tables = process(
        build_trajectory(build_search("a", 1), build_search("b", 2), build_search("c", 3)),
        build_trajectory(build_search("d", 3), question=other),
    )
    kept = build_query_rows(tables, FormatConfig(max_searches_per_question=2)).to_dicts()
    assert completions(kept) == [RENDER("a"), RENDER("b"), RENDER("d")]
    assert completions(build_query_rows(tables, FormatConfig(min_gain=0.5)).to_dicts()) == [RENDER("a"), RENDER("b")]
    assert len(build_query_rows(tables, FormatConfig(max_searches_per_question=0)).to_dicts()) == 4


def test_replies_cut_at_the_token_limit_and_failed_searches_are_not_taught(process) -> None:
    tables = process(
        build_trajectory(
            build_search("cut", 1, finish_reason="length"), build_search("failed", error="gone"), build_search("ok", 1)
        )
    )
    assert completions(build_query_rows(tables, FormatConfig()).to_dicts()) == [RENDER("ok")]


def test_of_equal_gains_the_source_that_gains_most_and_then_the_policys_own_come_first(process) -> None:
    part = process(
        build_trajectory(build_search("own", 1)),
        build_trajectory(build_search("misses"), sample_index=1),
        build_trajectory(build_search("theirs", 1), id="q1-rm3", baseline="rm3"),
        build_trajectory(build_search("worse", 2), id="q1-hyde", baseline="hyde"),
    )
    assert completions(build_query_rows(part, FormatConfig()).to_dicts()) == [RENDER("theirs"), RENDER("own"), RENDER("worse")]
    assert completions(build_query_rows(part, FormatConfig(max_searches_per_question=1)).to_dicts()) == [RENDER("theirs")]
    part = process(
        build_trajectory(build_search("own", 1)),
        build_trajectory(build_search("theirs", 1), id="q1-hyde", baseline="hyde"),
    )
    assert completions(build_query_rows(part, FormatConfig()).to_dicts()) == [RENDER("own"), RENDER("theirs")]


def test_what_shows_evidence_is_taught_too_where_the_question_finds_as_much(process) -> None:
    tables = process(
        build_trajectory(build_search("as good", 1), build_search("third", 3), build_search("fourth", 4), question_rank=1)
    )
    assert completions(build_query_rows(tables, FormatConfig()).to_dicts()) == []
    rows = build_query_rows(tables, FormatConfig(targets="found", weights="rank_score")).to_dicts()
    assert completions(rows) == [RENDER("as good"), RENDER("third")]
    assert [round(row["weight"], 2) for row in rows] == [1.0, 0.33]


def test_what_shows_no_evidence_is_taught_after_the_others_if_all_is_asked_for(process) -> None:
    tables = process(
        build_trajectory(build_search("lost"), build_search("third", 3), question_rank=1),
        build_trajectory(build_search("lost too"), question=build_question(id="q2")),
    )
    rows = build_query_rows(tables, FormatConfig(targets="all", weights="rank_score")).to_dicts()
    assert completions(rows) == [RENDER("third"), RENDER("lost"), RENDER("lost too")]
    assert [round(row["weight"], 2) for row in rows] == [0.33, 0.1, 0.1]
    [after_a_failure] = build_context_rows(tables, FormatConfig(targets="all")).to_dicts()
    assert completions([after_a_failure]) == [RENDER("third")]


def test_a_recovery_is_taught_from_its_own_prefix_or_with_the_best_query_of_another_sample(process) -> None:
    trajectory = build_trajectory(build_search("fails"), build_search("finds", 2, reasoning="Other words."))
    (row,) = build_context_rows(process(trajectory), FormatConfig()).to_dicts()
    assert row["prompt"] == json.loads(trajectory.messages)[:4]
    assert row["completion"] == [{"role": "assistant", "content": RENDER("finds", "Other words.")}]
    stuck = build_trajectory(build_search("fails"), build_search("fails too", reasoning="Hm."))
    solved = build_trajectory(build_search("good", 2), build_search("best", 1), sample_index=1)
    (row,) = build_context_rows(process(stuck, solved), FormatConfig()).to_dicts()
    assert row["prompt"] == json.loads(stuck.messages)[:4]
    assert row["completion"] == [{"role": "assistant", "content": RENDER("best")}]
    assert row["score"] == 1.0


def test_states_after_a_success_or_without_a_failed_query_give_no_row(process) -> None:
    tables = process(build_trajectory(build_search("a", 3), build_search("b", 1)))
    assert build_context_rows(tables, FormatConfig()).to_dicts() == []
    tables = process(build_trajectory(build_search("a", error="index is gone", hits=()), build_search("b", 1)))
    assert build_context_rows(tables, FormatConfig()).to_dicts() == []
    assert build_context_rows(process(build_trajectory(build_search("a"), build_search("b"))), FormatConfig()).to_dicts() == []


def test_the_policys_own_recoveries_come_first_within_the_limit(process) -> None:
    tables = process(
        build_trajectory(build_search("a"), build_search("b"), build_search("c", 3)),
        build_trajectory(build_search("best", 1), sample_index=1),
    )
    (row,) = build_context_rows(tables, FormatConfig(max_searches_per_question=1)).to_dicts()
    assert row["completion"][0]["content"] == RENDER("c")


def test_a_later_query_that_does_not_beat_the_question_is_replaced_by_the_best_one(process) -> None:
    tables = process(
        build_trajectory(build_search("a"), build_search("finds less", 3, reasoning="Hm."), **asked_at(2)),
        build_trajectory(build_search("best", 1), sample_index=1, id="x", baseline="rm3", **asked_at(2)),
    )
    (row,) = build_context_rows(tables, FormatConfig()).to_dicts()
    assert (row["completion"][0]["content"], row["trajectory_id"]) == (RENDER("best"), "q1-0")
    assert row["score"] == pytest.approx(0.3691, abs=1e-4)


def test_the_conversation_ends_with_the_best_query_and_trains_successes_alone(process) -> None:
    trajectory = build_trajectory(
        build_search("fails"),
        build_turn(),
        build_search("third", 3),
        build_search("best", 1),
        build_search("late", 1),
        build_answer(),
    )
    (row,) = build_conversation_rows(process(trajectory), FormatConfig()).to_dicts()
    assert row["messages"] == json.loads(trajectory.messages)[:9]
    assert row["messages"][-1]["content"] == "<search>best</search>"
    assert row["num_prompt_messages"] == 2
    assert row["train_turns"] == [False, False, True, True]
    assert row["score"] == 1.0


def test_only_searches_that_beat_the_question_and_all_before_by_enough_are_taught(process) -> None:
    ranks = {"same": 3, "better": 2, "worse": 5, "as good": 2, "best": 1}
    part = process(build_trajectory(*(build_search(query, rank) for query, rank in ranks.items()), **asked_at(3)))
    (row,) = build_conversation_rows(part, FormatConfig()).to_dicts()
    assert row["train_turns"] == [False, True, False, False, True]
    assert (row["score"], row["weight"]) == (0.5, 0.5)
    part = process(build_trajectory(build_search("a"), build_search("b", 4), **asked_at(4)))
    assert build_conversation_rows(part, FormatConfig()).to_dicts() == []
    tables = process(build_trajectory(build_search("low", 5), build_search("high", 1)))
    (row,) = build_conversation_rows(tables, FormatConfig(min_gain=0.4)).to_dicts()  # they add .39 and .61
    assert row["train_turns"] == [False, True]


def test_samples_with_the_same_best_query_give_one_row_the_shortest(process) -> None:
    tables = process(
        build_trajectory(build_search("x"), build_search("best", 1)),
        build_trajectory(build_search("best", 1), sample_index=1),
    )
    (row,) = build_conversation_rows(tables, FormatConfig()).to_dicts()
    assert row["trajectory_id"] == "q1-1"


def test_the_whole_conversation_is_taught_with_its_answer_but_not_what_could_not_be_read(process) -> None:
    trajectory = build_trajectory(build_search("wide"), build_turn(), build_search("good", 1), build_answer())
    (row,) = build_whole_conversations(process(trajectory), FormatConfig()).to_dicts()
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
    rows = build_whole_conversations(part, FormatConfig()).to_dicts()
    assert [row["trajectory_id"] for row in rows] == ["q1-2", "q1-1", "q1-4"]
    assert [row["score"] for row in rows] == [1.0, 1.0, 0.5]
    assert build_whole_conversations(part, FormatConfig(max_searches_per_question=2, min_gain=0.5)).height == 2


def test_the_rows_of_each_question_weigh_the_same_together(process) -> None:
    other = build_question(id="q2")
    part = process(
        *(build_trajectory(build_search(f"hit {index}", 1), sample_index=index) for index in range(3)),
        build_trajectory(build_search("hit", 1), question=other),
    )
    rows = build_whole_conversations(part, FormatConfig())
    assert rows.group_by("question_id", maintain_order=True).agg("weight").rows() == [("q1", [1 / 3] * 3), ("q2", [1.0])]


def test_a_cut_reply_is_context_and_a_conversation_of_nothing_else_is_left_out(process) -> None:
    part = process(
        build_trajectory(build_search("cut", 1, finish_reason="length"), build_search("good", 1)),
        build_trajectory(build_search("cut", 1, finish_reason="length"), sample_index=1),
    )
    (row,) = build_whole_conversations(part, FormatConfig()).to_dicts()
    assert row["train_turns"] == [False, True]


def test_conversations_without_a_success_of_the_policys_own_are_left_out(process) -> None:
    part = process(
        build_trajectory(build_search("same", 2), build_answer(), **asked_at(2)),
        build_trajectory(build_search("better", 1), build_answer(), sample_index=1, **asked_at(2)),
    )
    assert build_whole_conversations(part, FormatConfig())["trajectory_id"].to_list() == ["q1-1"]
    assert build_whole_conversations(part, FormatConfig(min_gain=0.4)).is_empty()
    part = process(
        ask_for_answer(build_trajectory(build_search("a"), build_search("late", 1))),
        ask_for_answer(build_trajectory(build_search("good", 1), build_search("late", 1), sample_index=1)),
    )
    (row,) = build_whole_conversations(part, FormatConfig()).to_dicts()
    assert (row["trajectory_id"], row["train_turns"]) == ("q1-1", [True, False])
    part = process(build_trajectory(build_search("own", 2)), build_trajectory(build_search("theirs", 1), id="x", baseline="rm3"))
    assert build_whole_conversations(part.own, FormatConfig())["trajectory_id"].to_list() == ["q1-0"]


ROWS = pl.DataFrame(
    {
        "gain": [1.0, 0.37, 0.13, 0.05],
        "rank_score": [1.0, 2 / 3, 0.2, 0.05],
        "cumulative_effort": [1.0, 0.5, 0.0, 0.05],
        "evidence_rank": [1, 2, 1, 3],
    }
)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("none", [1.0, 1.0, 1.0, 1.0]),
        ("gain", [1.0, 0.37, 0.13, 0.1]),
        ("rank_score", [1.0, 2 / 3, 0.2, 0.1]),
        ("rank_sq", [1.0, 4 / 9, 0.1, 0.1]),  # 0.2 squared is below the floor
        ("inv_effort", [1.0, 0.5, 0.1, 0.1]),
        ("binary", [1.0, 0.5, 1.0, 0.5]),
    ],
)
def test_weights_follow_their_scheme_down_to_the_floor(scheme: str, expected: list[float]) -> None:
    weights = ROWS.with_columns(row_weight(FormatConfig(weights=scheme)))["weight"].to_list()
    assert weights == pytest.approx(expected)


@pytest.mark.parametrize("module", [sft_query, sft_context, sft_trajectory])
def test_supervised_rows_carry_their_weight(process, module) -> None:
    part = process(build_trajectory(build_search("a"), build_search("b", 2), **asked_at(4)))
    rows = module.build_rows(part, FormatConfig())
    assert rows["weight"].to_list() == pytest.approx([0.6309 - 0.4307], abs=1e-4)
    rows = module.build_rows(part, FormatConfig(weights="rank_sq"))
    assert rows["weight"].to_list() == pytest.approx([4 / 9])
    # Position 3 + 2 of 6.
    rows = module.build_rows(part, FormatConfig(weights="inv_effort"))
    assert rows["weight"].to_list() == pytest.approx([1 - 4 / 6])
