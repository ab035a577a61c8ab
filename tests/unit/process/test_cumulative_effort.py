"""Effort against values worked out by hand from the definition of the DRAG reference."""

import polars as pl
import pytest

from drag_ray.process.turns import cumulative_effort


@pytest.mark.parametrize(
    ("first_success", "rank", "num_searches", "expected"),
    [
        (0, 1, 1, 1.0),  # the very first page
        (0, 3, 1, 1 / 3),  # position 3 of 3: 1 - 2/3
        (1, 1, 2, 0.5),  # position 4 of 6: 1 - 3/6
        (1, 2, 4, 1 - 4 / 12),  # position 5 of 12
        (3, 3, 4, 1 / 12),  # position 12 of 12: the last page of all
        (None, None, 4, 0.0),
        (None, None, 0, 0.0),
    ],
)
def test_cumulative_effort_counts_the_pages_before_the_evidence(
    first_success: int | None, rank: int | None, num_searches: int, expected: float
) -> None:
    columns = {"first": first_success, "rank": rank, "num": num_searches, "top_k": 3}
    row = pl.DataFrame({name: [value] for name, value in columns.items()}, schema=dict.fromkeys(columns, pl.Int32))
    effort = row.select(cumulative_effort(pl.col("first"), pl.col("rank"), pl.col("num"), pl.col("top_k")))
    assert effort.item() == pytest.approx(expected)


def test_cumulative_effort_of_unsigned_counts_does_not_wrap_around() -> None:
    schema = {"first": pl.UInt32, "rank": pl.Int32, "num": pl.UInt32, "top_k": pl.Int32}
    row = pl.DataFrame({"first": [0], "rank": [1], "num": [2], "top_k": [3]}, schema=schema)
    assert row.select(cumulative_effort(pl.col("first"), pl.col("rank"), pl.col("num"), pl.col("top_k"))).item() == 1.0
