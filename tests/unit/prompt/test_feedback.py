"""What a rollout is worth, and what is said of it."""

from pathlib import Path

import pytest
from factories import asked_at, build_answer, build_question, build_search, build_trajectory, build_turn

from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns
from drag_ray.prompt.optimisation import build_outcome
from drag_ray.schemas import TRAJECTORIES, to_table
from drag_ray.storage.artifacts import write_parquet
from drag_ray.types import ActionKind, Trajectory

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
    write_parquet(tmp_path / "part.parquet", to_table(trajectories, TRAJECTORIES))
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
