"""Rewards and effort against values worked out by hand: 1 / log2(1 + rank) is 1, .6309, .5, .4307, .3869 ... .2891 at 10."""

import itertools
import math
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from factories import (
    EVIDENCE,
    ask_for_answer,
    asked_at,
    build_answer,
    build_search,
    build_trajectory,
    build_turn,
    change,
    write_trajectories,
)

from drag_ray.process.config import ProcessConfig
from drag_ray.process.rewards import compute_added_recall, compute_answer_rewards, repeated_share
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import cumulative_effort, explode_turns, find_fatal_step, summarise_trajectories
from drag_ray.recipes.opensearch_vl.reward import compute_answer_reward, compute_format_factor
from drag_ray.recipes.v_retrver.reward import compute_format_term, compute_rank_term, compute_rerank_reward
from drag_ray.types import Evidence, Trajectory


def score(folder: Path, trajectory: Trajectory, **options: Any) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The turns of a trajectory, and its own row."""
    write_trajectories(folder / "part.parquet", [trajectory])
    config = ProcessConfig(**options)
    frame = select_trajectories(read_records([folder / "part.parquet"], config.read_depth)).frame
    turns = explode_turns(frame, config)
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


def test_replies_that_do_nothing_or_are_cut_cost_and_the_first_search_after_them_is_no_later_one(tmp_path: Path) -> None:
    trajectory = build_trajectory(build_turn(), build_search("a", 1), build_answer("340 rpm"), **asked_at(2))
    turns, whole = score(tmp_path, trajectory, answer_weight=0.5, invalid_cost=0.3)
    assert turns["reward"].to_list() == near(-0.3, 0.3691, 0.5)
    assert turns["gain"].to_list() == near(0.0, 0.3691, 0.0)
    assert whole["reward"] == pytest.approx(0.5691, abs=1e-4)
    turns, whole = score(tmp_path, build_trajectory(build_search("a", 1, finish_reason="length"), **asked_at(2)))
    assert (turns["reward"].to_list(), whole["reward"]) == ([-0.2], -0.2)
    assert turns["gain"].to_list() == near(0.3691)
    turns, _ = score(tmp_path, build_trajectory(build_search("rotor rotor rotor speed", 1), **asked_at(2)), repeat_cost=0.4)
    assert turns["reward"].to_list() == near(0.3691 - 0.2)


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


def test_the_best_gold_answer_counts_and_silence_is_worth_nothing() -> None:
    answers = pl.Series(["340 RPM", "", "no idea"])
    gold = pl.Series([["340 rpm", "5.7 Hz"], ["340 rpm"], ["340 rpm"]])
    assert compute_answer_rewards(answers, gold).to_list() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("are_good", "fatal_step", "factor"),
    [
        ([True, True], None, 1.0),
        ([True, False, False, True], None, 0.5),
        ([True, False, False, False], 1, 1.0),
        ([False, False, False], 0, 0.0),
        ([], None, 0.0),
    ],
)
def test_the_format_is_the_share_of_good_replies_before_a_fatal_one(
    are_good: list[bool], fatal_step: int | None, factor: float
) -> None:
    assert compute_format_factor(are_good, fatal_step) == factor


def test_the_reward_is_format_times_accuracy_and_queries() -> None:
    assert compute_answer_reward([True, False], 1.0, query_quality=0.5) == pytest.approx(0.5 * 0.9)
    assert compute_answer_reward([True], 0.5) == 0.5


@pytest.mark.parametrize(
    ("errors", "step"),
    [("xxx", 0), (".xxx.", 1), ("xx.xx", None), ("x.xxxx", 2), ("", None), ("xx", None)],
)
def test_three_errors_in_a_row_are_fatal_from_the_first_of_them(errors: str, step: int | None) -> None:
    assert find_fatal_step([error == "x" for error in errors]) == step


ORDERED_REPLY = "<think>The second shows it.</think><answer>[2, 1]</answer>"


@pytest.mark.parametrize(
    ("reply", "term"),
    [
        (ORDERED_REPLY, 1.0),
        ("<answer>[2, 1]</answer>", 0.0),
        ("So: <think>x</think><answer>[2, 1]</answer>", 0.0),
        ("<think>x</think> so <answer>[2, 1]</answer> it is", 1.0),
        ("<think><answer>second</answer></think><answer>[2, 1]</answer>", 0.5),
        ("<think>x</think><answer>second</answer>", 0.5),
        ("<think>x</think>[2, 1]", 0.0),
        ("<think>x</think><answer>[__import__('os')]</answer>", 0.5),
        ("", 0.0),
    ],
)
def test_the_form_is_worth_half_and_the_list_the_other_half(reply: str, term: float) -> None:
    assert compute_format_term(reply) == term


def test_the_form_is_the_published_one_and_the_rank_is_worth_a_gaussian() -> None:
    published = re.compile("<think>.*?</think>.*<answer>.*?</answer>.*", re.DOTALL)
    pieces = ("<think>", "</think>", "<answer>", "</answer>", "[2, 1]", "\n")
    for number in range(6):
        for chosen in itertools.product(pieces, repeat=number):
            reply = "".join(chosen)
            assert (compute_format_term(reply) > 0) is bool(published.fullmatch(reply))
    assert [compute_rank_term(rank) for rank in (1, 2, 3, None)] == pytest.approx([1, math.exp(-0.5), math.exp(-2), 0])


@pytest.mark.parametrize(
    ("rank", "num_calls", "share", "reward"),
    [
        (1, 0, 0.0, 1.0),
        (2, 0, 0.0, 0.3 + 0.7 * 0.60653),
        (None, 0, 0.0, 0.3),
        (1, 1, 0.25, 1.0 + 0.6 * 0.35),
        (1, 1, 0.6, 1.0),
        (1, 3, 0.9, 0.9),
        (1, 1, 0.0, 1.36),
        (None, 40, 0.9, -0.5),
    ],
)
def test_the_terms_add_up_within_their_bounds(rank: int | None, num_calls: int, share: float, reward: float) -> None:
    assert compute_rerank_reward(ORDERED_REPLY, rank, num_calls, share) == pytest.approx(reward, abs=1e-5)


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


@pytest.mark.parametrize(
    ("asked", "searches", "depth", "added"),
    [
        ("xa", ["by", "cz"], 2, [1 / 3, 1 / 3]),  # what the question has found is there already
        ("x", ["ab", "ba", "c"], 2, [2 / 3, 0.0, 1 / 3]),  # nothing is found twice
        ("xyza", ["bxya", "xyzc"], 3, [1 / 3, 0.0]),  # a and c are too far down
        ("abc", ["abc"], 5, [0.0]),
        ("x", [], 5, []),
    ],
)
def test_a_search_adds_to_the_candidates_what_nobody_has_found(
    asked: str, searches: list[str], depth: int, added: list[float]
) -> None:
    assert compute_added_recall("abc", asked, searches, depth) == pytest.approx(added)
    assert compute_added_recall("", asked, searches, depth) == [0.0] * len(searches)


def test_with_the_reward_candidates_a_search_earns_the_recall_that_it_adds_less_its_cost(tmp_path: Path) -> None:
    evidence = (EVIDENCE, Evidence("other.pdf", 1))
    searches = [build_search("a", 4), build_search("b", 1), build_search("c", 2)]
    trajectory = change(build_trajectory(*searches, **asked_at(None)), evidence=evidence)
    turns, whole = score(tmp_path, trajectory, reward="candidates", candidate_depth=3)
    assert turns["reward"].to_list() == near(0.0, 0.5 - 0.05, -0.05)  # at rank 4 it is no candidate, at 2 it is one already
    assert whole["reward"] == pytest.approx(0.4)
    assert "added_recall" not in {*turns.columns, *whole}


def test_with_the_reward_candidates_an_answer_is_what_improves_where_answers_are_scored(tmp_path: Path) -> None:
    trajectory = change(
        build_trajectory(build_search("a", 1), build_answer("42"), **asked_at(None)), task="answer", answers=("42",)
    )
    improvements = [score(tmp_path, trajectory, reward=name)[0]["improvement"].to_list() for name in ("gain", "candidates")]
    assert improvements[0] == improvements[1]
    assert improvements[0][-1] == 1.0
