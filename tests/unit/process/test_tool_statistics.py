"""Calls of tools in scored turns and in the statistics."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from factories import ask_for_answer, build_answer, build_call, build_search, build_trajectory

from drag_ray import schemas
from drag_ray.process.config import ProcessConfig
from drag_ray.process.statistics import compute_statistics, count_part, format_statistics
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns, summarise_trajectories
from drag_ray.storage import artifacts
from drag_ray.types import Trajectory

Process = Callable[..., tuple[pl.DataFrame, dict[str, Any]]]


@pytest.fixture
def process(tmp_path: Path) -> Process:
    def run(*trajectories: Trajectory) -> tuple[pl.DataFrame, dict[str, Any]]:
        path = tmp_path / "part.parquet"
        artifacts.write_parquet(path, schemas.to_table(trajectories, schemas.TRAJECTORIES))
        selected = select_trajectories(read_records([path]))
        turns = explode_turns(selected.frame, ProcessConfig())
        return turns, compute_statistics(count_part(turns, summarise_trajectories(selected.frame, turns)))

    return run


def test_calls_failures_and_seconds_are_counted_by_tool(process: Process) -> None:
    calls = (build_call(), build_call("read_page", tool_s=1.5), build_call(tool_error="no file", raw_text="other"))
    _, figures = process(build_trajectory(build_search("rotor", 1), *calls, build_answer()))
    assert figures["tool_calls"] == {"grep": 2, "read_page": 1}
    assert figures["tool_errors"] == {"grep": 1}
    assert figures["tool_seconds"] == {"grep": 0.5, "read_page": 1.5}
    assert figures["searches"] == 1
    lines = [line.split() for line in format_statistics(figures).splitlines()]
    assert ["Calls", "of", "grep", "2", "0.25", "s"] in lines
    assert ["that", "failed", "1", "50.0%"] in lines


def test_a_call_is_worth_nothing_by_itself_and_one_that_failed_is_not_learned(process: Process) -> None:
    calls = (build_call(), build_call(tool_error="no file", raw_text="other"))
    turns, _ = process(build_trajectory(build_search("rotor", 1), *calls, build_search("rotor rpm", 1), build_answer()))
    called = turns.filter(pl.col("action") == "tool")
    assert called["reward"].to_list() == [0.0, 0.0]
    assert called["drop_reason"].to_list() == ["", "failed"]


def test_a_call_where_the_answer_was_asked_for_is_as_wrong_as_a_search(process: Process) -> None:
    turns, _ = process(ask_for_answer(build_trajectory(build_search("rotor", 1), build_call())))
    assert turns["drop_reason"].to_list() == ["", "last_reply"]
    assert turns["reward"].to_list()[1] == -ProcessConfig().invalid_cost
