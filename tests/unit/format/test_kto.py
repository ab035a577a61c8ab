import json

import pytest
from factories import asked_at, build_question, build_search, build_trajectory

from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.kto import build_rows


def labels(part, **options) -> list[tuple[str, bool]]:
    rows = build_rows(part, FormatConfig(**options)).to_dicts()
    return [(row["completion"][0]["content"].removeprefix("<search>").removesuffix("</search>"), row["label"]) for row in rows]


def test_without_a_search_of_the_question_queries_are_wanted_if_they_found_evidence(process) -> None:
    trajectory = build_trajectory(build_search("miss"), build_search("hit", 2))
    part = process(trajectory)
    assert labels(part) == [("hit", True), ("miss", False)]
    prompts = [row["prompt"] for row in build_rows(part, FormatConfig()).to_dicts()]
    assert prompts == [json.loads(trajectory.messages)[:4], json.loads(trajectory.messages)[:2]]


def test_a_win_below_the_wanted_gain_is_neither(process) -> None:
    part = process(build_trajectory(build_search("low", 3), build_search("high", 1), build_search("none")))
    assert labels(part, min_gain=0.5) == [("high", True), ("none", False)]


QUESTION = build_question().question


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ({"first": 1, "second": 2, "fifth": 5}, [("first", True), (QUESTION, False), ("fifth", False)]),
        ({"second": 2, "fifth": 5, "none": None}, [(QUESTION, True), ("fifth", False), ("none", False)]),
        ({"second": 2}, []),
        ({"first": 1}, [("first", True), (QUESTION, False)]),
    ],
)
def test_what_beats_the_question_is_wanted_and_the_question_where_nothing_beats_it(
    process, ranks: dict[str, int | None], expected: list[tuple[str, bool]]
) -> None:
    searches = [build_search(query, rank) for query, rank in ranks.items()]
    part = process(*(build_trajectory(search, sample_index=index, **asked_at(2)) for index, search in enumerate(searches)))
    assert labels(part) == expected


def test_in_the_mode_expand_nothing_added_stands_for_the_question(process) -> None:
    part = process(build_trajectory(build_search("loses", 5), **asked_at(1), query_mode="expand"))
    rows = build_rows(part, FormatConfig()).to_dicts()
    assert labels(part) == [("", True), ("loses", False)]
    assert [row["score"] for row in rows] == pytest.approx([0, -0.6131], abs=1e-4)


def test_a_win_at_a_later_turn_says_nothing_of_the_question(process) -> None:
    part = process(build_trajectory(build_search("loses", 5), build_search("wins", 1), **asked_at(2)))
    assert labels(part) == [("wins", True), (QUESTION, True), ("loses", False)]


def test_each_label_of_a_question_is_limited_on_its_own(process) -> None:
    turns = [build_search(f"miss {number}") for number in range(3)] + [build_search(f"hit {number}", 1) for number in range(3)]
    part = process(build_trajectory(*turns), build_trajectory(build_search("x"), question=build_question(id="q2")))
    assert labels(part, max_searches_per_question=1) == [("hit 0", True), ("miss 0", False), ("x", False)]


def test_dropped_replies_are_neither(process) -> None:
    part = process(build_trajectory(build_search("cut", finish_reason="length"), build_search("failed", error="gone", hits=())))
    assert labels(part) == []
