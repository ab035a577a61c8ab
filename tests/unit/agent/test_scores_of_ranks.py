"""The rank score against values worked out by hand from the definition of the DRAG reference."""

import polars as pl
import pytest

from drag_ray.agent.scores import compute_rank_score, rank_score


@pytest.mark.parametrize(
    ("rank", "top_k", "expected"),
    [(1, 3, 1.0), (2, 3, 2 / 3), (3, 3, 1 / 3), (4, 3, 0.0), (None, 3, 0.0), (5, 5, 0.2), (1, 1, 1.0)],
)
def test_rank_score_falls_by_steps_of_one_over_top_k(rank: int | None, top_k: int, expected: float) -> None:
    row = pl.DataFrame({"rank": [rank], "top_k": [top_k]}, schema={"rank": pl.Int32, "top_k": pl.Int32})
    assert row.select(rank_score(pl.col("rank"), pl.col("top_k"))).item() == pytest.approx(expected)
    assert compute_rank_score(rank, top_k) == pytest.approx(expected)
