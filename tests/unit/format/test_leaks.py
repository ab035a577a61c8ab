import json

import pytest
from factories import EVIDENCE, build_question, build_search, build_trajectory

from drag_ray.errors import DataError
from drag_ray.format.config import FormatConfig
from drag_ray.format.leaks import screen_rows, tells_rank
from drag_ray.format.sft_context import build_rows as build_context_rows
from drag_ray.format.sft_query import build_rows
from drag_ray.types import Trajectory


def change_message(trajectory: Trajectory, position: int, addition: str) -> Trajectory:
    messages = json.loads(trajectory.messages)
    messages[position]["content"] += addition
    fields = {name: getattr(trajectory, name) for name in Trajectory.__dataclass_fields__}
    return Trajectory(**{**fields, "messages": json.dumps(messages)})


def test_clean_rows_pass(process) -> None:
    searches, trajectories = process(build_trajectory(build_search("a", 1)))
    rows = build_rows(searches, trajectories, FormatConfig())
    assert screen_rows(rows, trajectories) == (rows, 0)


def test_a_prompt_that_is_not_what_was_recorded_is_an_error(process) -> None:
    searches, trajectories = process(build_trajectory(build_search("a", 1)))
    rows = build_rows(searches, trajectories, FormatConfig())
    rows[0]["prompt"][1]["content"] += " It is in manual.pdf."
    with pytest.raises(DataError, match=r"row 1, trajectory 'q1-0': message 1"):
        screen_rows(rows, trajectories)


def test_a_result_that_tells_the_rank_sets_its_row_aside(process) -> None:
    told = change_message(build_trajectory(build_search("a"), build_search("b", 1)), 3, " Found relevant document at rank 7")
    searches, trajectories = process(told)
    rows = build_context_rows(searches, trajectories, FormatConfig())
    assert len(rows) == 1
    assert screen_rows(rows, trajectories) == ([], 1)


def test_what_the_policy_wrote_itself_is_no_leak() -> None:
    assert not tells_rank([{"role": "assistant", "content": "Found at rank 1, it says."}])
    assert tells_rank([{"role": "user", "content": "Found at rank 1"}])


@pytest.mark.parametrize("hint", [f" See {EVIDENCE.file}.", " The answer may be 340 RPM."])
def test_an_opening_that_names_evidence_or_answer_sets_its_rows_aside(process, hint: str) -> None:
    searches, trajectories = process(change_message(build_trajectory(build_search("a", 1)), 0, hint))
    assert screen_rows(build_rows(searches, trajectories, FormatConfig()), trajectories) == ([], 1)


def test_words_of_the_question_and_of_the_common_instructions_are_no_hint(process) -> None:
    asked = build_question(question=f"Which limit does {EVIDENCE.file} give?")
    instruction = " For example manual.pdf and 340 rpm."
    searches, trajectories = process(
        build_trajectory(build_search("a", 1), question=asked),
        change_message(build_trajectory(build_search("b", 1), question=build_question(id="q2")), 0, instruction),
        change_message(build_trajectory(build_search("c", 1), question=build_question(id="q3", question="Why?")), 0, instruction),
    )
    rows = build_rows(searches, trajectories, FormatConfig())
    assert len(rows) == 3
    assert screen_rows(rows, trajectories) == (rows, 0)
