"""Gains and rewards against values worked out by hand: 1 / log2(1 + rank) is 1, .6309, .5, .4307, .3869 ... .2891 at 10."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from factories import ask_for_answer, asked_at, build_answer, build_search, build_trajectory, build_turn

from drag_ray import schemas
from drag_ray.process.config import ProcessConfig
from drag_ray.process.rewards import compute_answer_rewards, repeated_share
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns, summarise_trajectories
from drag_ray.types import Trajectory


def score(folder: Path, trajectory: Trajectory, **options: Any) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The turns of a trajectory, and its own row."""
    pq.write_table(schemas.to_table([trajectory], schemas.TRAJECTORIES), folder / "part.parquet")
    frame = select_trajectories(read_records([folder / "part.parquet"])).frame
    turns = explode_turns(frame, ProcessConfig(**options))
    return turns, summarise_trajectories(frame, turns).row(0, named=True)


def near(*values: float) -> Any:
    return pytest.approx(values, abs=1e-4)


@pytest.mark.parametrize(
    ("question_rank", "rank", "gain"),
    [
        (2, 1, 0.3691),
        (1, 1, 0.0),
        (2, 5, -0.2441),
        (2, None, -0.6309),
        (None, 10, 0.2891),
        (None, 11, 0.0),  # beyond the depth
        (1, 11, -1.0),
        (None, None, 0.0),
    ],
)
def test_one_search_is_worth_what_it_gains_over_the_question(
    tmp_path: Path, question_rank: int | None, rank: int | None, gain: float
) -> None:
    turns, whole = score(tmp_path, build_trajectory(build_search("rotor", rank), **asked_at(question_rank)))
    for name in ("gain", "improvement", "reward"):
        assert turns[name].to_list() == near(gain)
    assert (whole["best_gain"], whole["reward"]) == near(gain, gain)


def test_without_a_search_of_the_question_the_gain_is_the_whole_utility(tmp_path: Path) -> None:
    turns, _ = score(tmp_path, build_trajectory(build_search("rotor", 3)))
    assert turns.select("utility", "gain", "improvement", "reward").row(0) == near(0.5, 0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("question_rank", "ranks", "gains", "improvements", "rewards"),
    [
        (3, (2, 1), (0.1309, 0.5), (0.1309, 0.3691), (0.1309, 0.3191)),
        # What the second one loses is not charged again: the first one has found it.
        (3, (2, 5), (0.1309, -0.1131), (0.1309, -0.2441), (0.1309, -0.05)),
        # It has to beat the question too, not only a first search that lost the page.
        (3, (None, 2), (-0.5, 0.1309), (-0.5, 0.1309), (-0.5, 0.0809)),
        (1, (None, 2), (-1.0, -0.3691), (-1.0, -0.3691), (-1.0, -0.05)),
        (None, (2, 2), (0.6309, 0.6309), (0.6309, 0.0), (0.6309, -0.05)),
    ],
)
def test_a_later_search_is_worth_what_it_adds_to_the_best_before(
    tmp_path: Path,
    question_rank: int | None,
    ranks: tuple[int | None, ...],
    gains: tuple[float, ...],
    improvements: tuple[float, ...],
    rewards: tuple[float, ...],
) -> None:
    searches = [build_search(f"query {number}", rank) for number, rank in enumerate(ranks)]
    turns, whole = score(tmp_path, build_trajectory(*searches, **asked_at(question_rank)))
    assert turns["gain"].to_list() == near(*gains)
    assert turns["improvement"].to_list() == near(*improvements)
    assert turns["reward"].to_list() == near(*rewards)
    assert (whole["reward"], whole["best_gain"]) == near(sum(rewards), max(gains))


def test_replies_that_do_nothing_cost_and_the_first_search_after_them_is_no_later_one(tmp_path: Path) -> None:
    trajectory = build_trajectory(build_turn(), build_search("a", 1), build_answer("340 rpm"), **asked_at(2))
    turns, whole = score(tmp_path, trajectory, answer_weight=0.5, invalid_cost=0.3)
    assert turns["reward"].to_list() == near(-0.3, 0.3691, 0.5)
    assert turns["gain"].to_list() == near(0.0, 0.3691, 0.0)
    assert whole["reward"] == pytest.approx(0.5691, abs=1e-4)


def test_a_cut_reply_costs_whatever_it_finds(tmp_path: Path) -> None:
    turns, whole = score(tmp_path, build_trajectory(build_search("a", 1, finish_reason="length"), **asked_at(2)))
    assert (turns["reward"].to_list(), whole["reward"]) == ([-0.2], -0.2)
    assert turns["gain"].to_list() == near(0.3691)


def test_a_search_where_the_answer_was_asked_for_costs_and_is_late(tmp_path: Path) -> None:
    record = build_trajectory(build_search("a", 3), build_search("b", 1), **asked_at(3))
    turns, _ = score(tmp_path, ask_for_answer(record))
    assert turns["is_late"].to_list() == [False, True]
    assert turns["reward"].to_list() == near(0.0, -0.2)
    assert turns["drop_reason"].to_list() == ["", "last_reply"]
    turns, _ = score(tmp_path, record)  # as it comes from elsewhere: nothing asked for the answer
    assert turns["reward"].to_list() == near(0.0, 0.45)
    turns, _ = score(tmp_path, ask_for_answer(build_trajectory(build_search("a"), build_answer("x"))))
    assert turns["is_late"].to_list() == [False, False]


@pytest.mark.parametrize(
    ("query", "share"),
    [
        ("rotor speed", 0.0),
        ("rotor Rotor speed rotor", 0.5),
        ("rotor^2 speed^2", 0.0),
        ("rotor^2 rotor^1.5", 0.5),
        ("10^9 10^6", 0.25),
        ("2 2 2", 2 / 3),
        ("", 0.0),
        ("?!", 0.0),
    ],
)
def test_the_repeated_share_counts_words_that_were_said_before(query: str, share: float) -> None:
    assert pl.DataFrame({"query": [query]}).select(repeated_share(pl.col("query"))).item() == pytest.approx(share)


def test_repeated_words_cost_by_their_share(tmp_path: Path) -> None:
    turns, _ = score(tmp_path, build_trajectory(build_search("rotor rotor rotor speed", 1), **asked_at(2)), repeat_cost=0.4)
    assert turns["reward"].to_list() == near(0.3691 - 0.2)


def test_the_best_gold_answer_counts_and_silence_is_worth_nothing() -> None:
    answers = pl.Series(["340 RPM", "", "no idea"])
    gold = pl.Series([["340 rpm", "5.7 Hz"], ["340 rpm"], ["340 rpm"]])
    assert compute_answer_rewards(answers, gold).to_list() == [1.0, 0.0, 0.0]
