"""An optimisation that goes on comes to the end that it would have come to, and asks for nothing twice."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from prompt_cases import ScriptedPromptEngine, add_word, build_sections, build_sets, rank_by_length

from drag_ray.prompt.optimisation import JournaledEngine, Outcome, optimise
from drag_ray.prompt.outcome import OptimisedPrompt
from drag_ray.types import Question


def run(engine: ScriptedPromptEngine, path: Path) -> tuple[OptimisedPrompt, list]:
    return optimise(build_sections(), JournaledEngine(engine, path), *build_sets(), 80)


class KilledError(BaseException):
    """What ends a process."""


class DyingEngine(ScriptedPromptEngine):
    """Is killed when it is asked for the `last` time."""

    def __init__(self, last: int) -> None:
        super().__init__(rank_by_length, add_word)
        self.last = last

    def roll_out(self, instructions: str, questions: Sequence[Question]) -> list[Outcome]:
        if len(self.asked) == self.last:
            raise KilledError
        return super().roll_out(instructions, questions)


@pytest.mark.parametrize("last", [0, 1, 2, 4, 6])
def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path, last: int) -> None:
    whole = ScriptedPromptEngine(rank_by_length, add_word)
    expected = run(whole, tmp_path / "whole.jsonl")
    path = tmp_path / "journal.jsonl"
    first = DyingEngine(last)
    with pytest.raises(KilledError):
        run(first, path)
    second = ScriptedPromptEngine(rank_by_length, add_word)
    assert run(second, path) == expected
    assert first.asked + second.asked == whole.asked
    assert first.requests + second.requests == whole.requests


def test_a_line_that_was_cut_short_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    expected = run(ScriptedPromptEngine(rank_by_length, add_word), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    engine = ScriptedPromptEngine(rank_by_length, add_word)
    assert run(engine, path) == expected
    assert len(engine.asked) == 1
    assert path.read_bytes() == whole


def test_a_finished_journal_needs_no_engine(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    expected = run(ScriptedPromptEngine(rank_by_length, add_word), path)
    engine = ScriptedPromptEngine(rank_by_length, add_word)
    journaled = JournaledEngine(engine, path)
    assert optimise(build_sections(), journaled, *build_sets(), 80) == expected
    assert (engine.asked, engine.requests) == ([], [])
    assert journaled.num_replayed == expected[0].rollouts
