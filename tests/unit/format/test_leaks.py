import json
from dataclasses import replace

import polars as pl
import pytest
from factories import EVIDENCE, build_answer, build_question, build_search, build_trajectory

from drag_ray.errors import DataError
from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import Layout
from drag_ray.format.leaks import RowChecker, find_leaks, screen_rows
from drag_ray.format.rows.sft_context import build_rows as build_context_rows
from drag_ray.format.rows.sft_query import build_rows
from drag_ray.format.rows.sft_trajectory import build_rows as build_trajectory_rows
from drag_ray.format.tables import ScoredPart
from drag_ray.types import Trajectory

SIDES = pl.DataFrame({"question_id": ["q1", "q2"], "side": ["train", "validation"]})


def change_message(trajectory: Trajectory, position: int, addition: str) -> Trajectory:
    messages = json.loads(trajectory.messages)
    messages[position]["content"] += addition
    return replace(trajectory, messages=json.dumps(messages))


def screen(rows: pl.DataFrame, part: ScoredPart) -> int:
    return screen_rows(rows, find_leaks(part.trajectories)).height


def check(rows: pl.DataFrame, part: ScoredPart) -> None:
    RowChecker(part, SIDES, Layout()).check(rows, "train", "train.parquet")


def plant(rows: pl.DataFrame, column: str, position: int, hint: str) -> pl.DataFrame:
    """The rows with a hint at the end of a message of the first one."""
    planted = rows.to_dicts()
    planted[0][column][position]["content"] += hint
    return pl.DataFrame(planted, schema=rows.schema)


@pytest.mark.parametrize("hint", [" It is in manual.pdf.", " The answer is 340 rpm.", " Found at rank 1."])
def test_a_leak_planted_into_a_written_prompt_is_caught(process, hint: str) -> None:
    part = process(build_trajectory(build_search("a", 1)), build_trajectory(build_search("b", 1), sample_index=1))
    rows = plant(build_rows(part, FormatConfig()), "prompt", 1, hint)
    with pytest.raises(DataError, match=r"train\.parquet: row 1 of trajectory 'q1-0' leaks: its input is not what the policy"):
        check(rows, part)


def test_a_leak_planted_into_a_written_conversation_is_caught(process) -> None:
    part = process(build_trajectory(build_search("a"), build_search("b", 1)))
    rows = build_trajectory_rows(part, FormatConfig())
    check(rows, part)
    with pytest.raises(DataError, match="row 1 of trajectory 'q1-0' leaks"):
        check(plant(rows, "messages", 3, " Look at page 7."), part)


def test_a_row_of_an_unknown_trajectory_a_question_of_the_other_side_and_a_recorded_leak_are_caught(process) -> None:
    part = process(build_trajectory(build_search("a", 1)))
    rows = build_rows(part, FormatConfig()).with_columns(trajectory_id=pl.lit("q1-9"))
    with pytest.raises(DataError, match="'q1-9' leaks"):
        check(rows, part)
    part = process(build_trajectory(build_search("a", 1), question=build_question(id="q2")))
    with pytest.raises(DataError, match="its question is not on the train side"):
        check(build_rows(part, FormatConfig()), part)
    part = process(change_message(build_trajectory(build_search("a", 1)), 0, " See manual.pdf."))
    with pytest.raises(DataError, match="tells the rank, a file or the answer"):
        check(build_rows(part, FormatConfig()), part)


def test_a_result_that_tells_the_rank_sets_aside_what_comes_after_it(process) -> None:
    told = change_message(build_trajectory(build_search("a"), build_search("b", 1)), 3, " Found relevant document at rank 7")
    part = process(told)
    after, before = build_context_rows(part, FormatConfig()), build_rows(part, FormatConfig())
    assert (after.height, screen(after, part)) == (1, 0)
    assert (before.height, screen(before, part)) == (1, 1)


def test_what_the_policy_wrote_itself_and_candidates_are_no_leak(process) -> None:
    record = build_trajectory(build_search("a", raw_text="Found at rank 1, it says."), build_search("b", 1), build_answer())
    part = process(record)
    assert screen(build_context_rows(part, FormatConfig()), part) == 1
    shown = change_message(build_trajectory(build_search("[1]", 1), task="rerank"), 1, " Candidates: (1) It is 340 rpm.")
    told = change_message(replace(shown, id="q1-1"), 0, " The answer may be 340 rpm.")
    assert find_leaks(process(shown, told).trajectories)["has_telling_opening"].to_list() == [False, True]


@pytest.mark.parametrize("hint", [f" See {EVIDENCE.file}.", " The answer may be 340 RPM."])
def test_an_opening_that_names_evidence_or_answer_sets_its_rows_aside(process, hint: str) -> None:
    part = process(change_message(build_trajectory(build_search("a", 1)), 0, hint))
    assert screen(build_rows(part, FormatConfig()), part) == 0


def test_words_of_the_question_and_of_the_common_instructions_are_no_hint(process) -> None:
    asked = build_question(question=f"Which limit does {EVIDENCE.file} give?")
    instruction = " For example manual.pdf and 340 rpm."
    part = process(
        build_trajectory(build_search("a", 1), question=asked),
        change_message(build_trajectory(build_search("b", 1), question=build_question(id="q2")), 0, instruction),
        change_message(build_trajectory(build_search("c", 1), question=build_question(id="q3", question="Why?")), 0, instruction),
    )
    assert screen(build_rows(part, FormatConfig()), part) == 3
