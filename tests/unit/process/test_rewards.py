"""Rewards against values worked out by hand from V-Retrver's definitions."""

from math import exp
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from factories import build_answer, build_search, build_trajectory, build_turn

from drag_ray import schemas
from drag_ray.process.config import ProcessConfig
from drag_ray.process.rewards import compute_answer_rewards, rank_reward
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns, summarise_trajectories
from drag_ray.types import Trajectory


def compute_rewards(folder: Path, trajectory: Trajectory, **options: Any) -> tuple[list[float], float]:
    """The rewards of a trajectory's turns, and its own."""
    pq.write_table(schemas.to_table([trajectory], schemas.TRAJECTORIES), folder / "part.parquet")
    config = ProcessConfig(**options)
    frame = select_trajectories(read_records([folder / "part.parquet"])).frame
    turns = explode_turns(frame, config)
    return turns["reward"].to_list(), summarise_trajectories(frame, turns, config)["reward"].item()


@pytest.mark.parametrize(
    ("rank", "sigma", "expected"),
    [
        (1, 1.0, 1.0),
        (2, 1.0, 0.6065306597),  # exp(-1/2)
        (3, 1.0, 0.1353352832),  # exp(-4/2)
        (2, 0.5, 0.1353352832),  # exp(-1 / (2 * 0.25))
        (4, 1.0, 0.0),
        (None, 1.0, 0.0),
    ],
)
def test_the_rank_reward_is_a_gaussian_within_the_shown_pages(rank: int | None, sigma: float, expected: float) -> None:
    row = pl.DataFrame({"rank": [rank], "top_k": [3]}, schema={"rank": pl.Int32, "top_k": pl.Int32})
    assert row.select(rank_reward(pl.col("rank"), pl.col("top_k"), sigma)).item() == pytest.approx(expected)


def test_turns_and_trajectory_are_weighed_as_told(tmp_path: Path) -> None:
    trajectory = build_trajectory(build_search("a"), build_turn(), build_search("b", 2), build_answer("340 rpm"))
    turns, whole = compute_rewards(tmp_path, trajectory, answer_weight=0.5)
    assert turns == pytest.approx([0.3, 0.0, 0.3 + 0.7 * exp(-0.5), 0.3 + 0.5])
    # Three of four replies could be read, the best search was at rank 2, the answer is right, and there were two searches.
    assert whole == pytest.approx(0.3 * 3 / 4 + 0.7 * exp(-0.5) + 0.5 - 0.05)


def test_a_reply_that_was_cut_earns_nothing_for_its_format(tmp_path: Path) -> None:
    assert compute_rewards(tmp_path, build_trajectory(build_search("a", 1, finish_reason="length"))) == ([0.7], 0.7)


def test_rewards_stay_within_their_bounds(tmp_path: Path) -> None:
    endless = build_trajectory(*(build_search(f"q{number}") for number in range(30)))
    assert compute_rewards(tmp_path, endless)[1] == -0.5
    perfect = build_trajectory(build_search("a", 1), build_answer("340 rpm"))
    assert compute_rewards(tmp_path, perfect, answer_weight=2.0)[1] == 1.5


def test_the_best_gold_answer_counts_and_silence_is_worth_nothing() -> None:
    answers = pl.Series(["340 RPM", "", "no idea"])
    gold = pl.Series([["340 rpm", "5.7 Hz"], ["340 rpm"], ["340 rpm"]])
    assert compute_answer_rewards(answers, gold).to_list() == [1.0, 0.0, 0.0]
