"""What baselines proposed, from its records to the rows: it is learned and compared, and is no sample of the policy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from factories import asked_at, build_question, build_search, build_trajectory

from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import Layout
from drag_ray.format.parts import FormatJob, FormattedPart, format_part
from drag_ray.format.rows import OF_TURNS
from drag_ray.process.parts import part_name

COMPARED = {"sft_query", "sft_context", "dpo", "reward"}


@pytest.fixture
def job(process, tmp_path: Path) -> FormatJob:
    """The policy never beats the question, a baseline does."""
    process(
        build_trajectory(build_search("own", 5), build_search("again", 4), **asked_at(2)),
        build_trajectory(build_search("other", 4), sample_index=1, **asked_at(2)),
        build_trajectory(build_search("theirs", 1), id="q1/rm3", baseline="rm3", **asked_at(2)),
    )
    sides = tmp_path / "questions.parquet"
    pl.DataFrame({"question_id": [build_question().id], "side": ["train"]}).write_parquet(sides)
    return FormatJob(tmp_path, sides, FormatConfig(), Layout())


def run(job: FormatJob, **options: Any) -> FormattedPart:
    return format_part(replace(job, config=FormatConfig(**options)), f"{part_name(0)}.parquet")


def list_formats(part: FormattedPart) -> set[str]:
    """The formats with a row that says what the baseline wrote."""
    return {name for name in OF_TURNS if "theirs" in str(part.rows[name, "train"].table.to_pylist())}


def test_only_formats_of_single_queries_take_what_was_proposed(job: FormatJob) -> None:
    part = run(job)
    assert list_formats(part) == COMPARED
    assert (part.num_searches, part.num_targets) == (4, 1)
    steps = part.rows["rl_steps", "train"].table
    assert sorted(steps["trajectory_id"].to_pylist()) == ["q1-0", "q1-0", "q1-1"]


def test_proposals_can_be_left_out(job: FormatJob) -> None:
    part = run(job, proposed=False)
    assert list_formats(part) == set()
    assert (part.num_searches, part.num_targets) == (3, 0)


def test_a_proposal_never_makes_an_own_query_a_duplicate(process) -> None:
    part = process(
        build_trajectory(build_search("same", 1), id="q1/rm3", baseline="rm3"),
        build_trajectory(build_search("same", 1), sample_index=1),
    )
    assert part.turns.select("baseline", "drop_reason").rows() == [("", ""), ("rm3", "duplicate")]
