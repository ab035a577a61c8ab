"""Counts of rollouts, compared with counts by hand; of a chunk, and of the files that the chunks became."""

from pathlib import Path

import pytest
from factories import build_answer, build_question, build_search, build_trajectory, build_turn

from drag_ray import artifacts, schemas
from drag_ray.collect.counts import COUNTS, ROLLOUT_COUNTS, count_chunk, count_files
from drag_ray.types import Trajectory

OTHER = build_question(id="q2", question="What drives the tail rotor of it?")
ROLLOUTS = [
    build_trajectory(build_search("rotor"), build_search(" rotor "), build_search("speed limit", 1), build_answer(), id="a"),
    build_trajectory(build_search("rotor", hits=()), build_turn(raw_text="and then " * 9), build_turn(), id="b"),
    build_trajectory(
        build_search("what drives the tail ROTOR of it", 2),
        build_search("rotor manual.pdf", hits=(), error="SearchIndexError: gone"),
        question=OTHER,
        id="c",
    ),
    build_trajectory(build_search("what drives the tail ROTOR of it", 8), question=OTHER, id="d"),
]
FAILED = build_trajectory(id="e", error="RolloutError: x")
EXPECTED = {
    "found": 2,
    "turns": 10,
    "invalid_replies": 2,
    "repetitive_replies": 1,
    "prompt_tokens": 30,
    "completion_tokens": 20,
    "searches": 7,
    "zero_hit_searches": 1,
    "repeated_queries": 1,
    "question_copies": 2,
    "file_name_queries": 1,
    "sampled_questions": 2,
    "one_query_questions": 0,
}


def write(path: Path, rollouts: list[Trajectory]) -> Path:
    artifacts.write_parquet(path, schemas.to_table(rollouts, schemas.TRAJECTORIES))
    return path


def test_a_chunk_is_counted() -> None:
    assert count_chunk([*ROLLOUTS, FAILED]) == {"finished": 4, "failed": 1, **EXPECTED}


def test_files_are_counted_as_the_chunks_that_they_came_from(tmp_path: Path) -> None:
    paths = [write(tmp_path / "1.parquet", ROLLOUTS[:1]), write(tmp_path / "2.parquet", ROLLOUTS[1:])]
    # q1 was asked rotor and speed limit; q2 its own question and the file
    assert count_files(paths) == {**EXPECTED, "queries_per_question": 2.0}


def test_questions_whose_rollouts_all_ask_the_same_are_counted() -> None:
    alike = [build_trajectory(build_search("rotor"), id="a"), build_trajectory(build_search("rotor "), id="b")]
    counts = count_chunk([*alike, build_trajectory(build_search("rotor"), question=OTHER, id="c")])
    assert (counts["sampled_questions"], counts["one_query_questions"]) == (1, 1)


def test_nothing_counts_as_nothing(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.parquet", [])
    zeros = dict.fromkeys(COUNTS, 0)
    assert count_chunk([]) == zeros
    assert count_chunk([FAILED]) == {**zeros, "failed": 1}
    assert count_files([empty]) == count_files([])
    assert set(count_files([])) == (set(COUNTS) - set(ROLLOUT_COUNTS)) | {"found", "queries_per_question"}


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_every_count_is_explained(name: str) -> None:
    assert COUNTS[name][0].islower()
