"""What a rollout is worth to the optimisation of a prompt and what is said of it; what the stage leaves, and what it is given."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from factories import (
    asked_at,
    build_answer,
    build_optimised_prompt,
    build_question,
    build_search,
    build_trajectory,
    build_turn,
    write_trajectories,
)

from drag_ray.corpus.near_duplicates import NO_NEAR_DUPLICATES
from drag_ray.errors import DamageError, DataError
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns
from drag_ray.prompt.config import count_collected
from drag_ray.prompt.optimisation import build_outcome
from drag_ray.prompt.outcome import read_prompt, write_prompt
from drag_ray.prompt.stage import divide_questions
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity
from drag_ray.types import ActionKind, Evidence, Question, Trajectory

PROMPT = build_optimised_prompt(query_mode="expand")


def test_a_prompt_is_read_as_it_was_written_but_blank_instructions_are_none(tmp_path: Path) -> None:
    write_prompt(tmp_path, PROMPT)
    assert read_prompt(tmp_path) == PROMPT
    """The agent would take them for no instructions, and ask with its own."""
    write_prompt(tmp_path, replace(PROMPT, instructions=" \n"))
    with pytest.raises(DamageError, match=r"instructions: String should match"):
        read_prompt(tmp_path)


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


def test_pages_of_validation_or_training_questions_are_used_once_and_those_without_evidence_not_at_all() -> None:
    feedback, validation = divide(build_questions(40, pages_each=2), 10, seed=0)
    pages = [{question.evidence for question in questions} for questions in (validation, feedback)]
    assert pages[0].isdisjoint(pages[1])
    assert len(validation) == 10
    feedback, validation = divide(build_questions(40, pages_each=2), 10, seed=0, held_out={"q0", "q7", "q8"})
    used = {question.id for question in (*validation, *feedback)}
    assert used.isdisjoint({"q0", "q1", "q6", "q7", "q8", "q9"})
    assert len(validation) == 10
    unanswerable = [build_question(id=f"u{number}", question=f"Nothing {number}?", evidence=()) for number in range(9)]
    feedback, validation = divide([*build_questions(4), *unanswerable], 2, seed=0)
    assert {question.id[0] for question in (*validation, *feedback)} == {"q"}


@pytest.mark.parametrize("questions", [[], build_questions(1), build_questions(8, pages_each=8)])
def test_too_few_questions_are_refused(questions: list[Question]) -> None:
    with pytest.raises(DataError, match=rf"{len(questions)} train questions, .*expected at least one to choose by"):
        divide(questions, 5, seed=0)


RANK_2, RANK_4 = 0.6309297535714575, 0.43067655807339306  # 1 / log2(1 + rank)


def expand(*turns: object, question_rank: int | None = 4, **fields: object) -> Trajectory:
    return build_trajectory(*turns, query_mode="expand", **asked_at(question_rank), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trajectory", "score", "question_score"),
    [
        (expand(build_search("rpm", 2)), RANK_2, RANK_4),
        (expand(build_search("rpm", None)), 0.0, RANK_4),
        (expand(build_search("rpm", 2), question_rank=None), RANK_2, 0.0),
        (expand(build_search("rpm", None), build_search("turn", 2), build_search("fast", 4)), RANK_2, RANK_4),
        (expand(build_turn()), RANK_4, RANK_4),  # it falls back on the question
        (expand(build_search("rpm", 2), error="RolloutError: gone"), 0.0, RANK_4),
        (build_trajectory(build_turn(), **asked_at(4)), 0.0, RANK_4),  # rewritten questions have nothing to fall back on
        (build_trajectory(build_search("", 1), build_search("", 2), task="rerank", **asked_at(4)), RANK_2, RANK_4),
    ],
)
def test_the_score_is_the_utility_of_the_best_rank(trajectory: Trajectory, score: float, question_score: float) -> None:
    outcome = build_outcome(trajectory, "")
    assert (outcome.score, outcome.question_score) == (pytest.approx(score), pytest.approx(question_score))


def test_the_gain_of_a_single_search_is_its_reward_in_training(tmp_path: Path) -> None:
    trajectories = [expand(build_search("rpm", rank), question=build_question(id=f"q{rank}")) for rank in (1, 2, 4, 7, None)]
    write_trajectories(tmp_path / "part.parquet", trajectories)
    turns = explode_turns(select_trajectories(read_records([tmp_path / "part.parquet"])).frame, ProcessConfig())
    outcomes = {trajectory.question_id: build_outcome(trajectory, "") for trajectory in trajectories}
    assert dict(turns.select("question_id", "reward").iter_rows()) == pytest.approx(
        {name: outcome.score - outcome.question_score for name, outcome in outcomes.items()}
    )


@pytest.mark.parametrize(
    ("trajectory", "written", "said"),
    [
        (expand(build_search("rpm^2", 2)), "search: rpm^2", "at rank 4. With the assistant's reply it is at rank 2: better."),
        (expand(build_search("rpm", None)), "search: rpm", "it is not among the first 10: worse."),
        (expand(build_search("", 4, raw_text="<search></search>")), "search: <search></search>", "it is at rank 4: no better."),
        (
            build_trajectory(build_search("rotor", 2), build_answer("340"), **asked_at(None)),
            "search: rotor\nanswer: 340",
            "The question alone finds the right page not among the first 10. With the assistant's reply it is at rank 2: better.",
        ),
        (expand(build_turn(raw_text="I do\nnot know.")), "invalid: I do not know.", "no better."),
        (
            expand(build_turn(action=ActionKind.TOOL, tool="look", arguments='{"page": 7}', tool_error="no such page")),
            'look: {"page": 7} no such page',
            "no better.",
        ),
        (expand(error="RolloutError: gone"), "nothing", "The assistant's reply failed: RolloutError: gone"),
    ],
)
def test_what_the_model_is_told_of_a_rollout(trajectory: Trajectory, written: str, said: str) -> None:
    record = build_outcome(trajectory, "Rotor speed limits.").record
    assert record["Inputs"] == {"Question": "How fast may the rotor turn?"}
    assert record["Generated Outputs"] == written
    assert said in record["Feedback"]
    assert record["Feedback"].endswith("The right page says: Rotor speed limits.")
