"""Reasons for which replies are dropped, and calls of tools in scored turns and in the statistics."""

from collections.abc import Callable

import polars as pl
from factories import ask_for_answer, build_answer, build_call, build_search, build_trajectory

from drag_ray.format.tables import ScoredPart
from drag_ray.process.config import FilterName, ProcessConfig
from drag_ray.process.quality import FAILED, FILTERS, add_drop_reasons, describe_reason
from drag_ray.process.statistics import compute_statistics, count_part, format_statistics


def build_turns(*replies: str, **columns: list) -> pl.DataFrame:
    """Searches of one state of one question, each reply a query."""
    num = len(replies)
    defaults = {
        "question_id": ["q1"] * num,
        "question": ["how fast?"] * num,
        "answers": [["340 rpm"]] * num,
        "hinted": [False] * num,
        "state": [7] * num,
        "action": ["search"] * num,
        "query": list(replies),
        "query_key": list(replies),
        "reply": list(replies),
        "evidence_rank": [None] * num,
        "has_error": [False] * num,
        "is_truncated": [False] * num,
        "is_late": [False] * num,
        "evidence_files": [["manual.pdf"]] * num,
    }
    return pl.DataFrame({**defaults, **columns}, schema_overrides={"evidence_rank": pl.Int32})


def reasons(turns: pl.DataFrame, filters: tuple[FilterName, ...] = tuple(FILTERS)) -> list[str]:
    return add_drop_reasons(turns, filters)["drop_reason"].to_list()


def test_of_equal_replies_in_one_state_the_first_fine_one_stays() -> None:
    assert reasons(build_turns("a b", "a b", "B a", "c")) == ["", "duplicate", "near_duplicate", ""]
    apart = build_turns("a b", "a b", state=[7, 8])
    assert reasons(apart) == ["", ""]
    assert reasons(build_turns("a b", "a b", question_id=["q1", "q2"])) == ["", ""]
    assert reasons(build_turns("a b", '"a b"', evidence_rank=[None, 1])) == ["", ""]
    assert reasons(build_turns("a b", '"a b"', evidence_rank=[2, 2])) == ["", "near_duplicate"]
    turns = build_turns("a b", "a b", "a b", is_truncated=[True, False, False], has_error=[False, True, False])
    assert reasons(turns) == ["truncated", "failed", ""]


def test_a_search_in_place_of_the_answer_is_dropped_unless_it_was_cut_as_well() -> None:
    turns = build_turns("a", "b", "c", is_truncated=[True, False, False], is_late=[True, True, False])
    assert reasons(turns) == ["truncated", "last_reply", ""]
    assert reasons(turns, ("truncated",)) == ["truncated", "", ""]


def test_only_the_chosen_filters_drop_and_every_reason_is_told_in_words_of_its_own() -> None:
    turns = build_turns("manual.pdf", "manual.pdf", has_error=[True, False])
    assert reasons(turns, ()) == ["failed", ""]
    assert reasons(turns) == ["failed", "file_name"]
    assert len({describe_reason(reason) for reason in (FAILED, *FILTERS)}) == 1 + len(FILTERS)
    assert [name for name in FILTERS if FILTERS[name].drops_repeats] == ["duplicate", "near_duplicate"]


def test_a_hinted_query_may_not_name_an_answer_that_the_question_does_not_hold() -> None:
    queries = ("rotor 340 RPM", "rotor speed", "rotor 340", "fast a")
    hinted = build_turns(*queries, hinted=[True] * 4, answers=[["340 rpm", "x"]] * 3 + [["fast", "a"]])
    assert reasons(hinted) == ["told_answer", "", "", ""]
    assert reasons(build_turns("Zu\u0308\u00adrich \uff19", hinted=[True], answers=[["Zürich 9"]])) == ["told_answer"]
    assert reasons(build_turns(*queries)) == [""] * 4
    assert reasons(build_turns("340 rpm", "limit 340 rpm", hinted=[False, True])) == ["", "told_answer"]


def test_calls_failures_and_seconds_are_counted_by_tool(process: Callable[..., ScoredPart]) -> None:
    calls = (build_call(), build_call("read_page", tool_s=1.5), build_call(tool_error="no file", raw_text="other"))
    part = process(build_trajectory(build_search("rotor", 1), *calls, build_answer()))
    figures = compute_statistics(count_part(part.turns, part.trajectories))
    assert figures["tool_calls"] == {"grep": 2, "read_page": 1}
    assert figures["tool_errors"] == {"grep": 1}
    assert figures["tool_seconds"] == {"grep": 0.5, "read_page": 1.5}
    assert figures["searches"] == 1
    lines = [line.split() for line in format_statistics(figures).splitlines()]
    assert ["Calls", "of", "grep", "2", "0.25", "s"] in lines
    assert ["that", "failed", "1", "50.0%"] in lines


def test_a_call_is_worth_nothing_and_a_failed_one_is_not_learned(
    process: Callable[..., ScoredPart],
) -> None:
    calls = (build_call(), build_call(tool_error="no file", raw_text="other"))
    turns = process(build_trajectory(build_search("rotor", 1), *calls, build_search("rotor rpm", 1), build_answer())).turns
    called = turns.filter(pl.col("action") == "tool")
    assert called["reward"].to_list() == [0.0, 0.0]
    assert called["drop_reason"].to_list() == ["", "failed"]
    turns = process(ask_for_answer(build_trajectory(build_search("rotor", 1), build_call()))).turns
    assert turns["drop_reason"].to_list() == ["", "last_reply"]
    assert turns["reward"].to_list()[1] == -ProcessConfig().invalid_cost
