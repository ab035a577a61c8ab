import pytest
from factories import asked_at, build_question, build_search, build_trajectory

from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.reward import build_rows


def test_first_searches_count_once_each_success_or_not(process) -> None:
    tables = process(
        build_trajectory(build_search("good", 1), build_search("later", 1)),
        build_trajectory(build_search("bad"), sample_index=1),
        build_trajectory(build_search(" bad "), sample_index=2),
        build_trajectory(build_search("failed", error="gone", hits=()), sample_index=3),
    )
    rows = build_rows(tables, FormatConfig()).to_dicts()
    assert [(row["query"], row["score"]) for row in rows] == [("good", 1.0), ("bad", 0.0)]


@pytest.mark.parametrize(("mode", "asked"), [("rewrite", build_question().question), ("expand", "")])
def test_the_question_is_among_the_queries_and_gains_nothing(process, mode: str, asked: str) -> None:
    part = process(
        build_trajectory(build_search("good", 1), **asked_at(2), query_mode=mode),
        build_trajectory(build_search("bad"), sample_index=1, **asked_at(2), query_mode=mode),
    )
    rows = build_rows(part, FormatConfig()).to_dicts()
    assert {row["query"]: row["score"] for row in rows} == pytest.approx({"good": 0.3691, asked: 0, "bad": -0.6309}, abs=1e-4)
    assert {row["query"]: row["baseline"] for row in rows} == {"good": "", asked: "question", "bad": ""}
    assert [row["completion"][0]["content"] for row in rows if row["query"] == asked] == [f"<search>{asked}</search>"]
