"""GEPA on a scripted model: what it finds, what it costs, and that the same seed finds the same."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from prompt_cases import OWN, ScriptedPromptEngine, add_word, build_sets, rank_by_length

from drag_ray.errors import ConfigError, EngineDiedError, PromptTooLongError, TooManyFailuresError
from drag_ray.prompt.engines import JournaledEngine, PromptEngine
from drag_ray.prompt.feedback import Outcome
from drag_ray.prompt.optimisation import Optimisation, optimise
from drag_ray.types import Question


def run(engine: PromptEngine, tmp_path: Path, max_rollouts: int = 100, seed: int = 0) -> Optimisation:
    log_path = tmp_path / "gepa.log"
    return optimise(
        OWN, engine, build_sets(), max_rollouts=max_rollouts, minibatch_size=3, max_failure_rate=0.2, seed=seed, log_path=log_path
    )


def test_better_instructions_are_found_and_chosen_by_the_validation_questions(tmp_path: Path) -> None:
    engine = ScriptedPromptEngine(rank_by_length, add_word)
    found = run(engine, tmp_path)
    assert found.instructions[:3] == (OWN, f"{OWN} word0", f"{OWN} word0 word1")
    # ranks 3, 2 and 1, where the question alone has rank 4
    assert found.scores == pytest.approx((0.5, 0.6309297535714575, 1.0))
    assert (found.best, found.question_score) == (2, pytest.approx(0.43067655807339306))
    assert [row.validation_score for row in found.log.rows] == pytest.approx(found.scores)
    assert [row.parent for row in found.log.rows] == [None, 0, 1]
    assert [row.minibatch_score for row in found.log.rows[1:]] == pytest.approx([3 * 0.6309297535714575, 3])
    assert "Found a better program" in (tmp_path / "gepa.log").read_text()


def test_proposals_that_are_no_better_are_not_validated(tmp_path: Path) -> None:
    engine = ScriptedPromptEngine(lambda instructions, question: 3 if instructions == OWN else 5, add_word)
    found = run(engine, tmp_path)
    assert (found.instructions, found.best, found.log.num_accepted) == ((OWN,), 0, 0)
    assert found.log.num_proposals == (100 - 6) // 6 - 1  # the last two would leave less than 12, which one might take
    assert {row.validation_score for row in found.log.rows[1:]} == {None}
    # ranks 3 and 5, three times each
    assert {(row.parent_minibatch_score, round(row.minibatch_score or 0, 4)) for row in found.log.rows[1:]} == {(1.5, 1.1606)}


@pytest.mark.parametrize("max_rollouts", [18, 19, 23, 24, 60, 100])
@pytest.mark.parametrize("improves", [True, False])
def test_no_rollout_more_than_allowed_is_taken_and_all_are_counted(tmp_path: Path, max_rollouts: int, improves: bool) -> None:
    def rank(instructions: str, question: str) -> int:
        return max(2, 40 - len(instructions.split())) if improves else 3

    engine = ScriptedPromptEngine(rank, add_word)
    found = run(engine, tmp_path, max_rollouts)
    assert found.num_rollouts == engine.num_rollouts <= max_rollouts
    assert engine.num_rollouts > max_rollouts - 12  # 12: two minibatches and the validation questions
    assert found.log.num_proposals >= 1


def test_too_few_rollouts_for_one_proposal_are_refused_before_any_is_taken(tmp_path: Path) -> None:
    engine = ScriptedPromptEngine(rank_by_length, add_word)
    with pytest.raises(ConfigError, match=r"prompt\.rollouts: got 17, expected at least 18: 6 validation questions twice"):
        run(engine, tmp_path, max_rollouts=17)
    with pytest.raises(ConfigError, match="got none, and no collection to take as many as"):
        run(engine, tmp_path, max_rollouts=0)
    assert engine.num_rollouts == 0


def test_the_same_seed_asks_the_same_and_another_one_otherwise(tmp_path: Path) -> None:
    def rank(instructions: str, question: str) -> int:
        return 1 + (len(instructions) * 7 + int(question[1:])) % 5

    first, second, other = (ScriptedPromptEngine(rank, add_word) for _ in range(3))
    found = run(first, tmp_path)
    again = run(second, tmp_path)
    assert len(found.instructions) > 2
    assert (again.instructions, again.scores, again.log.rows) == (found.instructions, found.scores, found.log.rows)
    assert (second.asked, second.requests) == (first.asked, first.requests)
    run(other, tmp_path, seed=1)
    assert other.asked != first.asked


def test_validation_questions_are_never_shown_to_who_proposes(tmp_path: Path) -> None:
    engine = ScriptedPromptEngine(lambda instructions, question: 3, add_word)
    run(engine, tmp_path, max_rollouts=200)
    shown = "".join(request for request, _ in engine.requests)
    assert all(f"rotor {number}?" in shown for number in range(12))
    assert not any(f"rotor {number}?" in shown for number in range(12, 18))


def test_the_request_holds_the_instructions_the_worst_first_and_what_is_told_apart(tmp_path: Path) -> None:
    engine = ScriptedPromptEngine(lambda instructions, question: 1 + int(question[1:]) % 4, add_word)
    run(engine, tmp_path, max_rollouts=18)
    [(request, number)] = engine.requests
    assert f"```\n{OWN}\n```" in request
    assert "told to it apart from its instructions" in request
    ranks = [int(part.split(":")[0]) for part in request.split("With the assistant's reply it is at rank ")[1:]]
    assert (len(ranks), ranks, number) == (3, sorted(ranks, reverse=True), 0)


def test_nothing_is_tried_where_nothing_new_is_written(tmp_path: Path) -> None:
    replies = iter([None, "```\n\n```", f"```\n{OWN}\n```", "```\nAnother.\n```"])
    engine = ScriptedPromptEngine(lambda instructions, question: 3, lambda request, number: next(replies, None))
    found = run(engine, tmp_path)
    assert {instructions for instructions, _ in engine.asked} == {OWN, "Another."}
    assert [row.instructions for row in found.log.rows] == [OWN, "Another."]


def test_a_perfect_minibatch_is_not_reflected_on(tmp_path: Path) -> None:
    engine = ScriptedPromptEngine(lambda instructions, question: 1, add_word)
    found = run(engine, tmp_path)
    assert engine.requests == []
    assert found.num_rollouts <= 100


def test_a_request_that_is_too_long_holds_fewer_examples(tmp_path: Path) -> None:
    def propose(request: str, number: int) -> str | PromptTooLongError:
        return PromptTooLongError("too long") if request.count("# Example") > 1 else add_word(request, number)

    engine = ScriptedPromptEngine(rank_by_length, propose)
    found = run(engine, tmp_path)
    assert found.best == 2
    assert [request.count("# Example") for request, _ in engine.requests[:4]] == [3, 1, 3, 1]


def test_instructions_that_leave_no_room_for_an_example_are_refused_if_they_are_the_agents_own(tmp_path: Path) -> None:
    engine = ScriptedPromptEngine(rank_by_length, lambda request, number: PromptTooLongError("too long"))
    with pytest.raises(PromptTooLongError, match=r"a single example: too long\. Lower prompt\.max_tokens"):
        run(engine, tmp_path)
    assert engine.num_rollouts == 6 + 3  # it ends at once

    def propose(request: str, number: int) -> str | PromptTooLongError:
        return PromptTooLongError("too long") if "word0" in request else add_word(request, number)

    found = run(ScriptedPromptEngine(rank_by_length, propose), tmp_path)
    assert found.instructions == (OWN, f"{OWN} word0")


def test_an_engine_that_dies_ends_the_optimisation(tmp_path: Path) -> None:
    engine = ScriptedPromptEngine(rank_by_length, lambda request, number: EngineDiedError("gone"))
    with pytest.raises(EngineDiedError, match="gone"):
        run(engine, tmp_path)
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


def test_failing_with_the_agents_own_instructions_ends_the_optimisation(tmp_path: Path) -> None:
    with pytest.raises(TooManyFailuresError, match=r"3 of 6 rollouts failed.*\n  3 x RolloutError: too hot"):
        run(FailingEngine(2, OWN), tmp_path)


def test_proposals_with_which_rollouts_fail_are_worth_less(tmp_path: Path) -> None:
    found = run(FailingEngine(1, "word0"), tmp_path)
    assert f"{OWN} word0" not in found.instructions
    assert (found.best, found.num_failed) == (2, 3)


def test_what_has_failed_is_not_kept(tmp_path: Path) -> None:
    engine = FailingEngine(1, "word0")
    run(JournaledEngine(engine, tmp_path / "journal.jsonl"), tmp_path)
    again = ScriptedPromptEngine(rank_by_length, add_word)
    run(JournaledEngine(again, tmp_path / "journal.jsonl"), tmp_path)
    assert again.asked[0][0] == f"{OWN} word0"
