"""Workers that stay for one plan after the other: each goes to its own folder with its own policy, whatever becomes of it."""

import dataclasses
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import collecting
import pytest
from factories import build_question
from scripted_engine import ScriptedEngine

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.engine.generate import Request
from drag_ray.errors import ConfigError
from drag_ray.rollout import journal
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.failures import ENGINE_DIED
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import run_plan
from drag_ray.rollout.worker_actors import KeptWorkers

SETTINGS = RolloutConfig(num_engines=1, concurrent_rollouts=4, chunk_rollouts=3, flush_s=0)
QUESTIONS = [build_question(id=f"q{number}", question=f"question {number}?") for number in range(6)]


def build_options(folder: Path, fault: Callable[[Request], None] = lambda request: None) -> WorkerOptions:
    """Options of an engine that searches for the number of its process."""

    def reply(request: Request) -> str:
        fault(request)
        return f"<search>{os.getpid()}</search>"

    def build_engine(*_: object) -> ScriptedEngine:
        return ScriptedEngine(reply, delay_s=0.02)

    agent = AgentConfig(query_mode="rewrite", max_iterations=1)
    return collecting.build_options(folder, ["rotor"], agent=agent, build_engine=build_engine, max_tries=SETTINGS.max_tries)


def roll_out(workers: KeptWorkers, options: WorkerOptions, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run a plan in a folder, with a policy, that have a name of their own; returns its counts and its trajectories."""
    options = dataclasses.replace(options, run_dir=options.run_dir.with_name(name), policies={"": Policy("scripted", name)})
    counts = run_plan(build_plan(QUESTIONS, ("default",), 2, run_seed=0), options, SETTINGS, name, workers.map_chunks)
    rows = journal.read_trajectories(options.run_dir).to_pylist()
    assert Counter(row["id"] for row in rows) == Counter(f"{question.id}/default/{n}" for question in QUESTIONS for n in (0, 1))
    assert {row["provenance"]["adapter"] for row in rows} == {name}
    return counts, rows


def list_processes(rows: list[dict[str, Any]]) -> set[str]:
    return {turn["query"] for row in rows for turn in row["turns"]}


def test_the_same_process_rolls_out_with_the_policy_of_each_plan_in_its_folder(local_ray: None, tmp_path: Path) -> None:
    with KeptWorkers() as workers:
        options = build_options(tmp_path)
        plans = [roll_out(workers, options, name) for name in ("one", "two", "three")]
    assert {counts["finished"] for counts, _ in plans} == {12}
    assert len(set.union(*(list_processes(rows) for _, rows in plans))) == 1


def test_the_chunks_of_a_worker_that_is_killed_are_given_to_another_with_the_plan_that_goes_on(
    local_ray: None, tmp_path: Path
) -> None:
    flag = tmp_path / "killed"

    def kill_once(request: Request) -> None:
        if "question 3?" in str(request.messages) and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    with KeptWorkers() as workers:
        _, first = roll_out(workers, build_options(tmp_path), "one")
        counts, rows = roll_out(workers, build_options(tmp_path, kill_once), "two")
        _, third = roll_out(workers, build_options(tmp_path), "three")
    assert (counts["finished"], counts["set_aside"]) == (12, 0)
    [died], [lives] = list_processes(first), list_processes(third)
    assert died != lives
    assert lives in list_processes(rows)
    assert any(ENGINE_DIED in problem["reason"] for problem in collecting.read_problems(tmp_path / "two"))


def test_what_a_worker_cannot_do_is_said_and_the_others_go_on(local_ray: None, tmp_path: Path) -> None:
    def refuse(*_: object) -> ScriptedEngine:
        raise ConfigError("the adapter does not fit")

    options = build_options(tmp_path)
    with KeptWorkers() as workers:
        roll_out(workers, options, "one")
        with pytest.raises(ConfigError, match="the adapter does not fit"):
            roll_out(workers, dataclasses.replace(options, build_engine=refuse), "two")
        counts, _ = roll_out(workers, options, "two")
    assert counts["finished"] == 12
