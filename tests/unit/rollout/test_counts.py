"""Counts of rollouts, compared with counts by hand; of a chunk, and of the files that the chunks became."""

import itertools
import random
from pathlib import Path

import polars as pl
import pytest
from factories import build_answer, build_call, build_question, build_search, build_trajectory, build_turn

from drag_ray import schemas
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records
from drag_ray.process.trajectory_parts import process_part
from drag_ray.rollout import counts
from drag_ray.rollout.counts import COUNTS, ROLLOUT_COUNTS, count_chunk, count_files, count_yields
from drag_ray.storage import artifacts
from drag_ray.types import Trajectory

OTHER = build_question(id="q2", question="What drives the tail rotor of it?")
CALLS = (build_call(), build_call(tool_error="no file"))
ROLLOUTS = [
    build_trajectory(build_search("rotor"), build_search(" rotor "), build_search("speed limit", 1), build_answer(), id="a"),
    build_trajectory(build_search("rotor", hits=()), build_turn(raw_text="and then " * 9), build_turn(), *CALLS, id="b"),
    build_trajectory(
        build_search("what drives the tail ROTOR of it", 2),
        build_search("rotor manual.pdf", hits=(), error="SearchIndexError: gone"),
        question=OTHER,
        id="c",
    ),
    build_trajectory(build_search("what drives the tail ROTOR of it", 8), question=OTHER, id="d"),
]
YIELDS = ("questions_with_success", "distinct_successful_queries", "preference_pairs")
FAILED = build_trajectory(id="e", error="RolloutError: x")
EXPECTED = {
    "found": 2,
    "turns": 12,
    "invalid_replies": 2,
    "repetitive_replies": 1,
    "prompt_tokens": 36,
    "completion_tokens": 24,
    "searches": 7,
    "zero_hit_searches": 1,
    "repeated_queries": 1,
    "question_copies": 2,
    "file_name_queries": 1,
    "tool_calls": 2,
    "tool_errors": 1,
    "sampled_questions": 2,
    "one_query_questions": 0,
}


def write(path: Path, rollouts: list[Trajectory]) -> Path:
    artifacts.write_parquet(path, schemas.to_table(rollouts, schemas.TRAJECTORIES))
    return path


def test_a_chunk_is_counted() -> None:
    assert count_chunk([*ROLLOUTS, FAILED]) == {"finished": 4, "failed": 1, **EXPECTED}


@pytest.mark.parametrize("batch_bytes", [1, 4_000_000])
def test_files_are_counted_as_the_chunks_that_they_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    monkeypatch.setattr(counts, "_BATCH_BYTES", batch_bytes)
    paths = [write(tmp_path / "1.parquet", ROLLOUTS[:1]), write(tmp_path / "2.parquet", ROLLOUTS[1:])]
    # q1 was asked rotor and speed limit; q2 its own question and the file
    yields = dict(zip(YIELDS, (2, 2, 0), strict=True))
    assert count_files(paths) == {**EXPECTED, **yields, "queries_per_question": 2.0}


def test_yields_are_those_of_the_process_stage_and_hints_are_left_out(tmp_path: Path) -> None:
    draw = random.Random(5)
    rollouts = []
    for number in range(60):
        question = build_question(id=f"q{number % 5}")
        queries = [draw.choice("abcd") for _ in range(draw.randint(1, 3))]
        # What a query finds follows from its question and its words, as it does in an index.
        turns = [build_search(query, 1 if (ord(query) + number % 5) % 3 == 0 else None) for query in queries]
        rollouts.append(build_trajectory(*turns, question=question, id=f"t{number}", hinted=number >= 50))
    paths = [write(tmp_path / f"{start}.parquet", rollouts[start : start + 20]) for start in (0, 20, 40)]
    expected = process_part(read_records(paths), 0, ProcessConfig(), tmp_path)
    counts = count_files(paths)
    assert {name: counts[name] for name in YIELDS} == {name: expected[name] for name in YIELDS}
    assert counts["preference_pairs"] > 20
    assert (counts["turns"], counts["found"], expected["hinted"]) == (expected["turns"], expected["valid"], 10)
    alone = write(tmp_path / "alone.parquet", rollouts[50:])
    assert count_files([alone]) == count_files([])


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
    assert set(count_files([])) == (set(COUNTS) - set(ROLLOUT_COUNTS)) | {"found", "queries_per_question", *YIELDS}


def build_searches(*rows: tuple[str, int, str, bool]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["question_id", "state", "query_key", "found"], orient="row")


def test_nothing_yields_nothing() -> None:
    assert set(count_yields(build_searches(("q1", 1, "bad", False))).values()) == {0}
    assert set(count_yields(build_searches(("q1", 1, "bad", False)).clear()).values()) == {0}


def test_yields_are_those_of_a_plain_count() -> None:
    draw = random.Random(1)
    rows = [(f"q{draw.randrange(5)}", draw.randrange(3), draw.choice("abcdef")) for _ in range(200)]
    searches = [(question, state, query, ord(query) % (1 + int(question[1])) == 0) for question, state, query in rows]
    distinct = set(searches)
    pairs = [
        (one, other) for one, other in itertools.product(distinct, distinct) if one[:2] == other[:2] and one[3] and not other[3]
    ]
    assert count_yields(build_searches(*searches)) == {
        "questions_with_success": len({question for question, _, _, found in searches if found}),
        "distinct_successful_queries": len({(question, query) for question, _, query, found in searches if found}),
        "preference_pairs": len(pairs),
    }
