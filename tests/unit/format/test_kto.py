import json

from factories import build_question, build_search, build_trajectory

from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.kto import build_rows


def labels(part, **options) -> list[tuple[str, bool]]:
    rows = build_rows(part, FormatConfig(**options)).to_dicts()
    return [(row["completion"][0]["content"].removeprefix("<search>").removesuffix("</search>"), row["label"]) for row in rows]


def test_queries_are_wanted_if_they_found_evidence(process) -> None:
    trajectory = build_trajectory(build_search("miss"), build_search("hit", 2))
    part = process(trajectory)
    assert labels(part) == [("hit", True), ("miss", False)]
    prompts = [row["prompt"] for row in build_rows(part, FormatConfig()).to_dicts()]
    assert prompts == [json.loads(trajectory.messages)[:4], json.loads(trajectory.messages)[:2]]


def test_a_success_below_the_wanted_score_is_neither(process) -> None:
    part = process(build_trajectory(build_search("low", 3), build_search("high", 1), build_search("none")))
    assert labels(part, min_rank_score=0.5) == [("high", True), ("none", False)]


def test_each_label_of_a_question_is_limited_on_its_own(process) -> None:
    turns = [build_search(f"miss {number}") for number in range(3)] + [build_search(f"hit {number}", 1) for number in range(3)]
    part = process(build_trajectory(*turns), build_trajectory(build_search("x"), question=build_question(id="q2")))
    assert labels(part, max_searches_per_question=1) == [("hit 0", True), ("miss 0", False), ("x", False)]


def test_dropped_replies_are_neither(process) -> None:
    part = process(build_trajectory(build_search("cut", finish_reason="length"), build_search("failed", error="gone", hits=())))
    assert labels(part) == []
