"""A plan names every rollout, and its chunks keep what they are given.

Which rollouts of a question run next follows from what its earlier samples found, and from nothing else.
"""

import pickle
import random
from collections.abc import Mapping

import pytest
from factories import asked_at, build_answer, build_question, build_search, build_trajectory

from drag_ray.agent.task import RolloutTask
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.plan import (
    build_plan,
    choose_next,
    choose_pending,
    count_chunks_at_once,
    count_plan,
    cut_chunks,
    group_by_question,
    list_successes,
)

QUESTIONS = [build_question(id=f"q{number}") for number in range(6)]
Found = frozenset[str]
NOTHING: Found = frozenset()


def build_tasks(num_samples: int, num_hinted: int = 0) -> list[RolloutTask]:
    return build_plan(QUESTIONS[:1], ("default",), num_samples, run_seed=0, hinted_samples=num_hinted)


def list_ids(tasks: list[RolloutTask]) -> list[str]:
    return [task.id.removeprefix("q0/default/") for task in tasks]


def play(
    tasks: list[RolloutTask], outcomes: Mapping[str, Found | None], enough: int, ended: dict | None = None
) -> list[list[str]]:
    """The rollouts of each round, one round after the other until the question is through."""
    ended, rounds = ended if ended is not None else {}, []
    while chosen := choose_next(tasks, ended, enough):
        rounds.append(list_ids(chosen))
        ended.update({task.id: outcomes.get(task.id, NOTHING) for task in chosen})
    return rounds


def outcome(*found: str | None) -> dict[str, Found | None]:
    return {f"q0/default/{index}": NOTHING if query is None else frozenset({query}) for index, query in enumerate(found)}


@pytest.mark.parametrize(
    ("num_samples", "outcomes", "enough", "rounds"),
    [
        pytest.param(4, outcome("a", "b"), 0, [["0", "1", "2", "3"]], id="all at once without a limit"),
        pytest.param(8, outcome("a", None, None, "b"), 2, [["0", "1"], ["2"], ["3"]], id="no more than successes are missing"),
        pytest.param(8, outcome("a", "a", "a", "b"), 2, [["0", "1"], ["2"], ["3"]], id="the same query twice is one success"),
        pytest.param(5, {}, 2, [["0", "1"], ["2", "3"], ["4"]], id="all where none succeeds"),
        pytest.param(4, outcome(None, None, "a") | {"q0/default/0": None}, 1, [["0"], ["1"], ["2"]], id="past one set aside"),
    ],
)
def test_samples_run_until_enough_have_succeeded(
    num_samples: int, outcomes: Mapping[str, Found | None], enough: int, rounds: list[list[str]]
) -> None:
    assert play(build_tasks(num_samples), outcomes, enough) == rounds


def test_a_restart_at_any_moment_comes_to_the_same_samples() -> None:
    draw = random.Random(3)
    for _ in range(300):
        tasks = build_tasks(draw.randint(1, 9), draw.randint(0, 2))
        enough = draw.randint(0, 4)
        outcomes = {task.id: frozenset(draw.sample("abcde", draw.choice((0, 0, 1, 2)))) for task in tasks}
        undisturbed: dict = {}
        play(tasks, outcomes, enough, undisturbed)
        # Killed at some moment, with some of its rollouts on disk; it loses more of them when a file is damaged.
        kept = {name: found for name, found in undisturbed.items() if draw.random() < 0.5}
        play(tasks, outcomes, enough, kept)
        assert kept == undisturbed


def test_hints_are_for_questions_whose_samples_all_ended_without_a_success() -> None:
    tasks = build_tasks(2, num_hinted=2)
    assert play(tasks, outcome(None, None), enough=0) == [["0", "1"], ["0/hinted", "1/hinted"]]
    assert play(tasks, outcome(None, "a"), enough=0) == [["0", "1"]]
    assert play(tasks, {"q0/default/0": None}, enough=0) == [["0", "1"]]


def test_hinted_rollouts_take_the_presets_in_turn_and_seeds_of_their_own() -> None:
    plan = build_plan(QUESTIONS[:3], ("default", "diverse"), 2, run_seed=0, hinted_samples=3)
    hinted = [task for task in plan[:7] if task.hinted]
    assert [task.id for task in hinted] == ["q0/default/0/hinted", "q0/diverse/1/hinted", "q0/default/2/hinted"]
    assert len({task.id for task in plan}) == len({task.seed for task in plan}) == 21
    assert [task.seed for task in plan if not task.hinted] == [
        task.seed for task in build_plan(QUESTIONS[:3], ("default", "diverse"), 2, run_seed=0)
    ]


def test_what_became_of_a_plan_adds_up() -> None:
    plan = build_plan(QUESTIONS[:3], ("default",), 4, run_seed=0, hinted_samples=1)
    ended = {"q0/default/0": frozenset({"a"}), "q1/default/0": None, "q1/default/1": NOTHING}
    ended |= {f"q2/default/{index}": NOTHING for index in range(4)} | {"q2/default/0/hinted": frozenset({"b"})}
    pending = choose_pending(plan, ended, enough_successes=1)
    assert {task.question.id for task in pending} == {"q1"}
    assert [task.id for task in pending] == [task.id for task in group_by_question(plan)[1]]
    assert count_plan(plan, ended, pending) == {
        "rollouts": 15,
        "finished": 6,
        "hinted": 1,
        "set_aside": 1,
        "unfinished": 3,
        "skipped": 4,
    }


def test_successes_are_told_apart_by_their_words_and_not_by_their_spacing() -> None:
    turns = (build_search("rotor  speed", 1), build_search("rotor speed ", 2), build_search("blade", 4), build_answer())
    assert list_successes(build_trajectory(*turns)) == {"rotor speed"}
    assert list_successes(build_trajectory(*turns, error="engine gone")) is None


def test_a_query_wins_that_ranks_the_evidence_better_than_the_question_or_first() -> None:
    turns = (build_search("better", 3), build_search("as good", 4), build_search("worse", 5), build_search("first", 1))
    assert list_successes(build_trajectory(*turns, **asked_at(4))) == {"better", "first"}
    assert list_successes(build_trajectory(*turns, **asked_at(1))) == {"first"}
    assert list_successes(build_trajectory(*turns, **asked_at(None))) == {"better", "as good", "worse", "first"}


def test_proposals_run_with_the_first_samples_and_do_not_count_for_enough() -> None:
    tasks = build_plan(QUESTIONS[:1], ("default",), 3, run_seed=0, proposals={"rm3": 1, "neighbours": 2})
    proposed = ["0/rm3", "0/neighbours", "1/neighbours"]
    outcomes = outcome(None, "won", None) | {"q0/default/0/rm3": frozenset({"proposed"})}
    assert play(tasks, outcomes, 1) == [["0", *proposed], ["1"]]
    assert play(tasks, outcomes, 0) == [["0", "1", "2", *proposed]]


def test_a_question_that_a_baseline_wins_needs_no_hint() -> None:
    tasks = build_plan(QUESTIONS[:1], ("default",), 1, run_seed=0, hinted_samples=1, proposals={"rm3": 1})
    assert play(tasks, {"q0/default/0/rm3": frozenset({"proposed"})}, 0) == [["0", "0/rm3"]]
    assert play(tasks, {}, 0) == [["0", "0/rm3"], ["0/hinted"]]


def test_samples_take_the_openings_in_turn() -> None:
    plan = build_plan(QUESTIONS[:1], ("default",), 5, run_seed=0, num_prompt_sets=2)
    assert [task.prompt_set for task in plan] == [0, 1, 2, 0, 1]


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


def test_an_engine_has_as_many_chunks_as_fill_it() -> None:
    # A chunk of 4 is open for 1 + 1/2 + 1/3 + 1/4 = 25/12 rollouts, so 16 slots take 4 * 25/12 chunks; and one more follows.
    assert count_chunks_at_once(chunk_rollouts=4, concurrent_rollouts=16, share=100) == 10
    assert count_chunks_at_once(chunk_rollouts=1, concurrent_rollouts=16, share=100) == 17
    assert count_chunks_at_once(chunk_rollouts=4, concurrent_rollouts=16, share=4) == 4


def test_an_engine_with_many_slots_takes_larger_chunks() -> None:
    assert [RolloutConfig(concurrent_rollouts=slots).chunk_size for slots in (1, 256, 800, 10_000)] == [8, 8, 8, 100]
    assert RolloutConfig(concurrent_rollouts=10_000, chunk_rollouts=3).chunk_size == 3
