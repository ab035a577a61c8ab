"""What the stage leaves, and what it is given."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from factories import build_optimised_prompt, build_question

from drag_ray.corpus.near_duplicates import NO_NEAR_DUPLICATES
from drag_ray.errors import DamageError, DataError
from drag_ray.prompt.config import count_collected
from drag_ray.prompt.outcome import read_prompt, write_prompt
from drag_ray.prompt.stage import divide_questions
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Evidence, Question

PROMPT = build_optimised_prompt(query_mode="expand")


def test_a_prompt_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_prompt(tmp_path, PROMPT)
    assert read_prompt(tmp_path) == PROMPT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("", "EOF"),
        ('{"instructions": "Write', "EOF"),
        ("[]", "object"),
        (json.dumps({"instructions": "Write."}), "own_instructions: Field required"),
        (json.dumps({**asdict(PROMPT), "instructions": 7}), "instructions: Input should be a valid string"),
        (json.dumps({**asdict(PROMPT), "score": "high"}), "score: Input should be a valid number"),
    ],
)
def test_a_broken_prompt_is_refused_with_its_file_and_what_makes_it_anew(tmp_path: Path, text: str | None, said: str) -> None:
    folder = tmp_path / "prompt"
    if text is not None:
        artifacts.write_text(folder / "prompt.json", text)
    with pytest.raises(DamageError, match=rf"prompt\.json: not an optimised prompt \(.*{said}.*Run: python jobs/prompt\.py"):
        read_prompt(folder)


def test_blank_instructions_are_none(tmp_path: Path) -> None:
    """The agent would take them for no instructions, and ask with its own."""
    write_prompt(tmp_path, replace(PROMPT, instructions=" \n"))
    with pytest.raises(DamageError, match=r"instructions: String should match"):
        read_prompt(tmp_path)


def test_all_that_a_collection_has_finished_counts(tmp_path: Path) -> None:
    with StageFolder(tmp_path / "collect", Identity("collect", {}, {})) as folder:
        folder.finish({"rollouts": 900, "finished": 700, "hinted": 20, "set_aside": 3, "skipped": 177})
    assert count_collected(tmp_path / "collect") == 720
    assert count_collected(None) == 0


def build_questions(num_questions: int, pages_each: int = 1) -> list[Question]:
    return [
        build_question(id=f"q{number}", question=f"Rotor {number}?", evidence=(Evidence("a.pdf", number // pages_each),))
        for number in range(num_questions)
    ]


def divide(questions: list[Question], num_validation: int, seed: int = 0, **options: object) -> tuple:
    return divide_questions(questions, num_validation, seed, NO_NEAR_DUPLICATES, **options)  # type: ignore[arg-type]


def test_questions_are_divided_by_the_seed_and_half_of_them_at_most_validate() -> None:
    questions = build_questions(40)
    feedback, validation = divide(questions, 10, seed=3)
    assert (len(validation), len(feedback)) == (10, 30)
    assert {question.id for question in (*validation, *feedback)} == {question.id for question in questions}
    assert divide(questions, 10, seed=3) == (feedback, validation) != divide(questions, 10, seed=4)
    assert len(divide(questions, 100, seed=3)[1]) == 20


def test_no_proposal_is_made_from_a_page_that_validates() -> None:
    feedback, validation = divide(build_questions(40, pages_each=2), 10, seed=0)
    pages = [{question.evidence for question in questions} for questions in (validation, feedback)]
    assert pages[0].isdisjoint(pages[1])
    assert len(validation) == 10


def test_what_training_is_validated_on_is_left_out_with_all_that_shares_its_pages() -> None:
    feedback, validation = divide(build_questions(40, pages_each=2), 10, seed=0, held_out={"q0", "q7", "q8"})
    used = {question.id for question in (*validation, *feedback)}
    assert used.isdisjoint({"q0", "q1", "q6", "q7", "q8", "q9"})
    assert len(validation) == 10


def test_questions_without_evidence_are_left_out() -> None:
    unanswerable = [build_question(id=f"u{number}", question=f"Nothing {number}?", evidence=()) for number in range(9)]
    feedback, validation = divide([*build_questions(4), *unanswerable], 2, seed=0)
    assert {question.id[0] for question in (*validation, *feedback)} == {"q"}


@pytest.mark.parametrize("questions", [[], build_questions(1), build_questions(8, pages_each=8)])
def test_too_few_questions_are_refused(questions: list[Question]) -> None:
    with pytest.raises(DataError, match=rf"{len(questions)} train questions, .*expected at least one to choose by"):
        divide(questions, 5, seed=0)
