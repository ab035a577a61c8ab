"""What a rank is worth, against values worked out by hand: the DRAG reference's rank score, and the discount of DCG."""

import polars as pl
import pytest

from drag_ray.agent.scores import compute_rank_score, compute_utility, rank_score, utility


@pytest.mark.parametrize(
    ("rank", "top_k", "expected"),
    [(1, 3, 1.0), (2, 3, 2 / 3), (3, 3, 1 / 3), (4, 3, 0.0), (None, 3, 0.0), (5, 5, 0.2), (1, 1, 1.0)],
)
def test_rank_score_falls_by_steps_of_one_over_top_k(rank: int | None, top_k: int, expected: float) -> None:
    row = pl.DataFrame({"rank": [rank], "top_k": [top_k]}, schema={"rank": pl.Int32, "top_k": pl.Int32})
    assert row.select(rank_score(pl.col("rank"), pl.col("top_k"))).item() == pytest.approx(expected)
    assert compute_rank_score(rank, top_k) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rank", "depth", "expected"),
    [
        *(
            (rank, 10, value)
            for rank, value in enumerate((1, 0.6309, 0.5, 0.4307, 0.3869, 0.3562, 0.3333, 0.3155, 0.3010, 0.2891), 1)
        ),
        *((11, 10, 0.0), (3, 2, 0.0), (None, 10, 0.0), (1023, 1023, 0.1)),
    ],
)
def test_utility_is_the_discount_of_dcg_down_to_the_depth(rank: int | None, depth: int, expected: float) -> None:
    row = pl.DataFrame({"rank": [rank], "depth": [depth]}, schema={"rank": pl.Int32, "depth": pl.Int32})
    assert row.select(utility(pl.col("rank"), pl.col("depth"))).item() == pytest.approx(expected, abs=5e-5)
    assert compute_utility(rank, depth) == pytest.approx(expected, abs=5e-5)
