"""GEPA on a scripted model: what it finds and costs, and that it finds the same with the same seed, or when it goes on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from prompt_cases import OWN, ScriptedPromptEngine, add_word, build_sections, build_sets, rank_by_length

from drag_ray.errors import ConfigError, EngineDiedError, PromptTooLongError, TooManyFailuresError
from drag_ray.prompt.optimisation import JournaledEngine, Outcome, PromptEngine, optimise
from drag_ray.prompt.outcome import OptimisedPrompt
from drag_ray.types import Question


def run(engine: PromptEngine, max_rollouts: int = 100, seed: int = 0) -> tuple[OptimisedPrompt, list]:
    return optimise(build_sections(seed), engine, *build_sets(), max_rollouts)


def test_better_instructions_are_found_and_chosen_by_the_validation_questions() -> None:
    found, rows = run(ScriptedPromptEngine(rank_by_length, add_word))
    assert (found.instructions, found.own_instructions) == (f"{OWN} word0 word1", OWN)
    assert [row["instructions"] for row in rows] == [OWN, f"{OWN} word0", f"{OWN} word0 word1"]
    # ranks 3, 2 and 1, where the question alone has rank 4
    assert [row["validation_score"] for row in rows] == pytest.approx([0.5, 0.6309297535714575, 1.0])
    assert (found.own_score, found.score, found.question_score) == pytest.approx((0.5, 1.0, 0.43067655807339306))
    assert [(row["candidate"], row["parent"]) for row in rows] == [(0, None), (1, 0), (2, 1)]
    assert [row["minibatch_score"] for row in rows[1:]] == pytest.approx([3 * 0.6309297535714575, 3])
    assert (found.proposals, found.accepted, found.num_validation_questions) == (2, 2, 6)


def test_proposals_that_are_no_better_are_not_validated() -> None:
    found, rows = run(ScriptedPromptEngine(lambda instructions, question: 3 if instructions == OWN else 5, add_word))
    assert (found.instructions, found.score, found.accepted) == (OWN, found.own_score, 0)
    # the last two would leave less than 12, which one might take
    assert found.proposals == len(rows) - 1 == (100 - 6) // 6 - 1
    assert {(row["candidate"], row["validation_score"]) for row in rows[1:]} == {(None, None)}
    # ranks 3 and 5, three times each
    assert {(row["parent_minibatch_score"], round(row["minibatch_score"], 4)) for row in rows[1:]} == {(1.5, 1.1606)}


@pytest.mark.parametrize("max_rollouts", [18, 19, 23, 24, 60, 100])
@pytest.mark.parametrize("improves", [True, False])
def test_no_rollout_more_than_allowed_is_taken_and_all_are_counted(max_rollouts: int, improves: bool) -> None:
    def rank(instructions: str, question: str) -> int:
        return max(2, 40 - len(instructions.split())) if improves else 3

    engine = ScriptedPromptEngine(rank, add_word)
    found, _ = run(engine, max_rollouts)
    assert found.rollouts == engine.num_rollouts <= max_rollouts
    assert engine.num_rollouts > max_rollouts - 12  # 12: two minibatches and the validation questions
    assert found.proposals >= 1


def test_too_few_rollouts_for_one_proposal_are_refused_before_any_is_taken() -> None:
    engine = ScriptedPromptEngine(rank_by_length, add_word)
    with pytest.raises(ConfigError, match=r"prompt\.rollouts: got 17, expected at least 18: 6 validation questions twice"):
        run(engine, max_rollouts=17)
    with pytest.raises(ConfigError, match="got none, and no collection to take as many as"):
        run(engine, max_rollouts=0)
    assert engine.num_rollouts == 0


def test_the_same_seed_asks_the_same_and_another_one_otherwise() -> None:
    def rank(instructions: str, question: str) -> int:
        return 1 + (len(instructions) * 7 + int(question[1:])) % 5

    first, second, other = (ScriptedPromptEngine(rank, add_word) for _ in range(3))
    found = run(first)
    again = run(second)
    assert found[0].accepted > 1
    assert again == found
    assert (second.asked, second.requests) == (first.asked, first.requests)
    run(other, seed=1)
    assert other.asked != first.asked


def test_validation_questions_are_never_shown_to_who_proposes() -> None:
    engine = ScriptedPromptEngine(lambda instructions, question: 3, add_word)
    run(engine, max_rollouts=200)
    shown = "".join(request for request, _ in engine.requests)
    assert all(f"rotor {number}?" in shown for number in range(12))
    assert not any(f"rotor {number}?" in shown for number in range(12, 18))


def test_the_request_holds_the_instructions_the_worst_first_and_what_is_told_apart() -> None:
    engine = ScriptedPromptEngine(lambda instructions, question: 1 + int(question[1:]) % 4, add_word)
    run(engine, max_rollouts=18)
    [(request, number)] = engine.requests
    assert f"```\n{OWN}\n```" in request
    assert "told to it apart from its instructions" in request
    ranks = [int(part.split(":")[0]) for part in request.split("With the assistant's reply it is at rank ")[1:]]
    assert (len(ranks), ranks, number) == (3, sorted(ranks, reverse=True), 0)


def test_nothing_is_tried_where_nothing_new_is_written_or_nothing_is_to_be_mended() -> None:
    replies = iter([None, "```\n\n```", f"```\n{OWN}\n```", "```\nAnother.\n```"])
    engine = ScriptedPromptEngine(lambda instructions, question: 3, lambda request, number: next(replies, None))
    _, rows = run(engine)
    assert {instructions for instructions, _ in engine.asked} == {OWN, "Another."}
    assert [row["instructions"] for row in rows] == [OWN, "Another."]
    engine = ScriptedPromptEngine(lambda instructions, question: 1, add_word)
    found, _ = run(engine)
    assert (engine.requests, found.rollouts <= 100) == ([], True)


def test_a_request_that_is_too_long_is_refused_where_nothing_was_proposed_yet() -> None:
    engine = ScriptedPromptEngine(rank_by_length, lambda request, number: PromptTooLongError("too long"))
    with pytest.raises(PromptTooLongError, match=r"other instructions: too long\. Lower prompt\.minibatch_size"):
        run(engine)
    assert engine.num_rollouts == 6 + 3  # it ends at once

    def propose(request: str, number: int) -> str | PromptTooLongError:
        return PromptTooLongError("too long") if "word0" in request else add_word(request, number)

    found, rows = run(ScriptedPromptEngine(rank_by_length, propose))
    assert (found.instructions, len(rows)) == (f"{OWN} word0", 2)


def test_an_engine_that_dies_ends_the_optimisation() -> None:
    engine = ScriptedPromptEngine(rank_by_length, lambda request, number: EngineDiedError("gone"))
    with pytest.raises(EngineDiedError, match="gone"):
        run(engine)
    assert engine.num_rollouts == 6 + 3


class FailingEngine(ScriptedPromptEngine):
    """Every `one_in`-th rollout fails with instructions that end so."""

    def __init__(self, one_in: int, end: str) -> None:
        super().__init__(rank_by_length, add_word)
        self.one_in, self.end = one_in, end

    def roll_out(self, instructions: str, questions: Sequence[Question]) -> list[Outcome]:
        fails = instructions.endswith(self.end)
        return [
            replace(outcome, score=0.0, error="RolloutError: too hot") if fails and number % self.one_in == 0 else outcome
            for number, outcome in enumerate(super().roll_out(instructions, questions))
        ]


def test_failing_rollouts_end_the_optimisation_or_count_against_their_proposal() -> None:
    with pytest.raises(TooManyFailuresError, match=r"3 of 6 rollouts failed.*\n  3 x RolloutError: too hot"):
        run(FailingEngine(2, OWN))
    found, rows = run(FailingEngine(1, "word0"))
    assert (rows[1]["instructions"], rows[1]["minibatch_score"], rows[1]["candidate"]) == (f"{OWN} word0", 0, None)
    assert (found.score, found.failed_rollouts) == (1.0, 3)


def test_what_has_failed_is_not_kept(tmp_path: Path) -> None:
    engine = FailingEngine(1, "word0")
    run(JournaledEngine(engine, tmp_path / "journal.jsonl"))
    again = ScriptedPromptEngine(rank_by_length, add_word)
    run(JournaledEngine(again, tmp_path / "journal.jsonl"))
    assert again.asked[0][0] == f"{OWN} word0"


def run_journaled(engine: ScriptedPromptEngine, path: Path) -> tuple[OptimisedPrompt, list]:
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
    expected = run_journaled(whole, tmp_path / "whole.jsonl")
    path = tmp_path / "journal.jsonl"
    first = DyingEngine(last)
    with pytest.raises(KilledError):
        run_journaled(first, path)
    second = ScriptedPromptEngine(rank_by_length, add_word)
    assert run_journaled(second, path) == expected
    assert first.asked + second.asked == whole.asked
    assert first.requests + second.requests == whole.requests


def test_a_journal_that_was_cut_short_is_gone_on_with_and_a_finished_one_needs_no_engine(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    expected = run_journaled(ScriptedPromptEngine(rank_by_length, add_word), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    engine = ScriptedPromptEngine(rank_by_length, add_word)
    assert run_journaled(engine, path) == expected
    assert len(engine.asked) == 1
    assert path.read_bytes() == whole
    engine = ScriptedPromptEngine(rank_by_length, add_word)
    journaled = JournaledEngine(engine, path)
    assert optimise(build_sections(), journaled, *build_sets(), 80) == expected
    assert (engine.asked, engine.requests) == ([], [])
    assert journaled.num_replayed == expected[0].rollouts
