"""Weights worked out by hand, from gains and from the definitions of the DRAG reference."""

import polars as pl
import pytest
from factories import asked_at, build_search, build_trajectory

from drag_ray.format.config import FormatConfig
from drag_ray.format.rows import sft_context, sft_query, sft_trajectory
from drag_ray.format.weights import WeightScheme, row_weight

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
def test_weights_follow_their_scheme_down_to_the_floor(scheme: WeightScheme, expected: list[float]) -> None:
    weights = ROWS.with_columns(row_weight(scheme))["weight"].to_list()
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
