from factories import build_search, build_trajectory

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
