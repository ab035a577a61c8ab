"""A plan names every rollout, and its chunks keep what they are given."""

import pickle

from factories import build_question

from drag_ray.rollout.plan import build_plan, cut_chunks

QUESTIONS = [build_question(id=f"q{number}", question=f"question {number}?") for number in range(6)]


def test_a_plan_names_every_rollout_once() -> None:
    plan = build_plan(QUESTIONS, ("default", "diverse"), 3, run_seed=1)
    assert len({task.id for task in plan}) == len(plan) == 36
    assert len({task.seed for task in plan}) == 36
    assert build_plan(QUESTIONS, ("default", "diverse"), 3, run_seed=1) == plan


def test_tasks_survive_their_chunk() -> None:
    plan = build_plan(QUESTIONS, ("default",), 3, run_seed=1)
    ended = {plan[0].id: frozenset({"rotor"}), plan[1].id: None, plan[5].id: frozenset[str]()}
    assert [pickle.loads(pickle.dumps(chunk)) for chunk in cut_chunks(plan, 6, ended)] == [
        (0, plan[:6], ended),
        (1, plan[6:12], {}),
        (2, plan[12:], {}),
    ]


def test_the_samples_of_a_question_stay_together() -> None:
    plan = build_plan(QUESTIONS, ("default",), 3, run_seed=1)
    assert [len(chunk.tasks) for chunk in cut_chunks(plan, 8)] == [6, 6, 6]
    assert [len(chunk.tasks) for chunk in cut_chunks(plan, 2)] == [3] * 6
