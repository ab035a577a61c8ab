import json

import pytest
from factories import asked_at, build_question, build_search, build_trajectory

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.sft_query import build_rows

RENDER = get_protocol("tags").render_search


def completions(rows: list[dict]) -> list[str]:
    return [row["completion"][0]["content"] for row in rows]


def test_best_distinct_queries_come_first_over_all_samples_and_turns(process) -> None:
    tables = process(
        build_trajectory(build_search("misses"), build_search("third", 3)),
        build_trajectory(build_search("second", 2), build_search("first", 1), sample_index=1),
        build_trajectory(build_search("second ", 2), sample_index=2),
    )
    rows = build_rows(tables, FormatConfig()).to_dicts()
    assert completions(rows) == [RENDER("first"), RENDER("second"), RENDER("third")]
    assert [round(row["score"], 2) for row in rows] == [1.0, 0.63, 0.5]


def test_the_prompt_is_the_opening_even_of_a_query_from_a_later_turn(process) -> None:
    trajectory = build_trajectory(build_search("misses"), build_search("finds", 1))
    (row,) = build_rows(process(trajectory), FormatConfig()).to_dicts()
    assert row["prompt"] == json.loads(trajectory.messages)[:2]


def test_reasoning_is_kept_for_a_first_query_only(process) -> None:
    tables = process(
        build_trajectory(build_search("one", 1, reasoning="A manual gives limits."), build_search("two", 1, reasoning="So:"))
    )
    assert completions(build_rows(tables, FormatConfig()).to_dicts()) == [RENDER("one", "A manual gives limits."), RENDER("two")]
    assert completions(build_rows(tables, FormatConfig(include_reasoning=False)).to_dicts()) == [RENDER("one"), RENDER("two")]


def test_limits_apply_to_each_question(process) -> None:
    other = build_question(id="q2")
    tables = process(
        build_trajectory(build_search("a", 1), build_search("b", 2), build_search("c", 3)),
        build_trajectory(build_search("d", 3), question=other),
    )
    kept = build_rows(tables, FormatConfig(max_searches_per_question=2)).to_dicts()
    assert completions(kept) == [RENDER("a"), RENDER("b"), RENDER("d")]
    assert completions(build_rows(tables, FormatConfig(min_gain=0.5)).to_dicts()) == [RENDER("a"), RENDER("b")]
    assert len(build_rows(tables, FormatConfig(max_searches_per_question=0)).to_dicts()) == 4


def test_replies_cut_at_the_token_limit_and_failed_searches_are_not_taught(process) -> None:
    tables = process(
        build_trajectory(
            build_search("cut", 1, finish_reason="length"), build_search("failed", error="gone"), build_search("ok", 1)
        )
    )
    assert completions(build_rows(tables, FormatConfig()).to_dicts()) == [RENDER("ok")]


def test_only_queries_that_beat_the_question_are_taught(process) -> None:
    ranks = {"first": 1, "second": 2, "third": 3, "none": None}
    part = process(*(build_trajectory(build_search(query, rank), **asked_at(2), id=query) for query, rank in ranks.items()))
    (row,) = build_rows(part, FormatConfig()).to_dicts()
    assert completions([row]) == [RENDER("first")]
    assert [row["score"], row["weight"]] == pytest.approx([0.3691, 0.3691], abs=1e-4)


def test_of_equal_gains_that_comes_first_whose_source_gains_most_on_average(process) -> None:
    part = process(
        build_trajectory(build_search("own", 1)),
        build_trajectory(build_search("misses"), sample_index=1),
        build_trajectory(build_search("theirs", 1), id="q1-rm3", baseline="rm3"),
        build_trajectory(build_search("worse", 2), id="q1-hyde", baseline="hyde"),
    )
    assert completions(build_rows(part, FormatConfig()).to_dicts()) == [RENDER("theirs"), RENDER("own"), RENDER("worse")]
    assert completions(build_rows(part, FormatConfig(max_searches_per_question=1)).to_dicts()) == [RENDER("theirs")]


def test_of_equal_gains_and_sources_the_policys_own_comes_first(process) -> None:
    part = process(
        build_trajectory(build_search("own", 1)),
        build_trajectory(build_search("theirs", 1), id="q1-hyde", baseline="hyde"),
    )
    assert completions(build_rows(part, FormatConfig()).to_dicts()) == [RENDER("own"), RENDER("theirs")]


def test_what_shows_evidence_is_taught_too_where_the_question_finds_as_much(process) -> None:
    tables = process(
        build_trajectory(build_search("as good", 1), build_search("third", 3), build_search("fourth", 4), question_rank=1)
    )
    assert completions(build_rows(tables, FormatConfig()).to_dicts()) == []
    rows = build_rows(tables, FormatConfig(targets="found", weights="rank_score")).to_dicts()
    assert completions(rows) == [RENDER("as good"), RENDER("third")]
    assert [round(row["weight"], 2) for row in rows] == [1.0, 0.33]
