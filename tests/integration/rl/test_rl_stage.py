"""Reinforcement learning while collecting, with the real engine and model: a run that comes to its end at once, and one that is
killed within a step and goes on."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from factories import build_page, build_question
from small_index import finish_index
from waiting import wait_until

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.adapter import check_adapter
from drag_ray.engine.models.canary import read_canary
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_stages
from drag_ray.pipeline.stages import STAGES
from drag_ray.rl.learning import list_policies, locate_policy, locate_step
from drag_ray.rollout.folder import LOGS_DIR_NAME
from drag_ray.rollout.journal import read_trajectories
from drag_ray.stage_runs.damage import verify_stage
from drag_ray.types import Evidence

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.timeout(900)
WORDS = ("rotor", "spar", "valve", "pump", "flap", "wheel", "strut", "brake", "hinge", "gauge")
STEPS = 3
OPTIONS: dict[str, Any] = {
    "agent": {
        **{"max_iterations": 1, "max_tokens": 12, "thinking": False, "query_mode": "rewrite"},
        "examples": [
            {"question": "Where is the mast drawn?", "query": "mast"},
            {"question": "Where is the oar painted?", "query": "oar wood"},
        ],
    },
    "engine": {"device": "cpu", "dtype": "float32", "max_model_len": 1024, "max_num_seqs": 16, "enforce_eager": True},
    "rollout": {"concurrent_rollouts": 4, "chunk_rollouts": 2, "flush_s": 0, "workers_per_engine": 1},
    "format": {"validation_fraction": 0.2},
    "finetune": {
        **{"device": "cpu", "dtype": "float32", "learning_rate": 2e-3, "lora_r": 4, "warmup_ratio": 0.0, "merge": False},
        **{"target_modules": ["q_proj", "v_proj"], "batch_size": 2},
    },
    "rl": {
        "steps": STEPS,
        "questions_per_step": 2,
        "samples_per_question": 2,
        "refills": 1,
        "validation_steps": 3,
        "max_without_search": 1.0,
    },
}


def write_index(run_dir: Path) -> None:
    """Pages of some words each, of which a question has one in common with its page alone."""
    pages = [build_page(file="a.pdf", page_number=number, text=f"The {word} is here.") for number, word in enumerate(WORDS, 1)]
    questions = [
        build_question(id=word, question=f"Where is the {word} shown?", evidence=(Evidence("a.pdf", number),), split="train")
        for number, word in enumerate(WORDS, start=1)
    ]
    finish_index(run_dir, pages, questions)


def start(run_dir: Path, ray_address: str, log: Path) -> subprocess.Popen[bytes]:
    script = (
        "import json, sys; from drag_ray.api.run import open_run; options = json.loads(sys.argv[1])\n"
        "with open_run(sys.argv[2], cluster={'address': sys.argv[3]}, **options) as run: run.rl()"
    )
    command = [sys.executable, "-c", script, json.dumps(OPTIONS), str(run_dir), ray_address]
    return subprocess.Popen(command, cwd=ROOT, stdout=log.open("wb"), stderr=subprocess.STDOUT)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_rollouts(stage_dir: Path, step: int) -> dict[str, tuple[str, str]]:
    """Of each rollout when it was begun, and the policy that it was drawn from."""
    rows = read_trajectories(locate_step(stage_dir, step)).to_pylist()
    return {row["id"]: (row["provenance"]["started_at"], row["provenance"]["adapter"]) for row in rows}


@dataclass(frozen=True)
class Course:
    """A stage that came to its end, and what there was of it when it was killed in its second step, if it was."""

    stage_dir: Path
    ledger_before: list[dict[str, Any]]
    rollouts_before: dict[str, tuple[str, str]]


@pytest.fixture(scope="module", params=["undisturbed", pytest.param("killed", marks=pytest.mark.slow)])
def course(request: pytest.FixtureRequest, ray_address: str, tmp_path_factory: pytest.TempPathFactory) -> Course:
    folder = tmp_path_factory.mktemp("rl")
    run_dir = folder / "run"
    write_index(run_dir)
    stage_dir = run_dir / "rl"
    ledger: list[dict[str, Any]] = []
    rollouts: dict[str, tuple[str, str]] = {}
    if request.param == "killed":
        ledger, rollouts = kill_within_second_step(run_dir, ray_address, folder / "first.log")
    process = start(run_dir, ray_address, folder / "second.log")
    assert process.wait(timeout=500) == 0, (folder / "second.log").read_text(errors="replace")[-3000:]
    return Course(stage_dir, ledger, rollouts)


def kill_within_second_step(
    run_dir: Path, ray_address: str, log: Path
) -> tuple[list[dict[str, Any]], dict[str, tuple[str, str]]]:
    """The ledger, and the rollouts of the first step, as they are then."""
    stage_dir, process = run_dir / "rl", start(run_dir, ray_address, log)

    def is_within_second_step() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        return any(entry["event"] == "drawn" and entry["step"] == 2 for entry in read_lines(stage_dir / "steps.jsonl"))

    wait_until(is_within_second_step, 400)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return read_lines(stage_dir / "steps.jsonl"), read_rollouts(stage_dir, 1)


def test_no_group_is_skipped_and_none_is_trained_twice(course: Course) -> None:
    ledger = read_lines(course.stage_dir / "steps.jsonl")
    assert ledger[: len(course.ledger_before)] == course.ledger_before
    assert [entry["step"] for entry in ledger if entry["event"] == "trained"] == list(range(1, STEPS + 1))
    drawn = [name for entry in ledger if entry["event"] == "drawn" for name in entry["questions"]]
    assert max(Counter(drawn[:8]).values()) == 1  # the eight that are trained on all come before any comes again
    for step in range(1, STEPS + 1):
        of_step = [name for entry in ledger if entry["event"] == "drawn" and entry["step"] == step for name in entry["questions"]]
        rollouts = read_rollouts(course.stage_dir, step)
        assert {name.partition("/")[0] for name in rollouts} == set(of_step)
        assert len(rollouts) == 2 * len(of_step)
        rows = read_lines(locate_step(course.stage_dir, step) / "rows.jsonl")
        assert {row["trajectory_id"] for row in rows} <= rollouts.keys()
    if course.ledger_before:  # what was there is not rolled out again
        assert read_rollouts(course.stage_dir, 1) == course.rollouts_before


def test_each_step_is_rolled_out_by_the_policy_of_the_one_before_and_engine_and_worker_stay(course: Course) -> None:
    for step in range(1, STEPS + 1):
        adapters = {adapter for _, adapter in read_rollouts(course.stage_dir, step).values()}
        assert adapters == {str(locate_policy(course.stage_dir, step - 1))}
    folders = [locate_step(course.stage_dir, 2), locate_step(course.stage_dir, 3), course.stage_dir / "validation" / "00003"]
    assert len(set.intersection(*({path.name for path in (folder / LOGS_DIR_NAME).iterdir()} for folder in folders))) == 2
    points = {point["step"]: point for point in read_lines(course.stage_dir / "curve.jsonl") if "reward" in point}
    assert list(points) == list(range(1, STEPS + 1))
    learned = [point for point in points.values() if point["rows"]]
    assert len(learned) > 1
    assert learned[-1]["kl"] > 1e-3
    for point in learned:  # the engine writes with what was learned before: replies are as likely to it as to the trainer
        assert abs(point["engine_kl"]) < 1e-3 + point["kl"] / 5
        assert point["entropy"] > 0


def test_the_policy_that_is_best_in_validation_is_published(course: Course) -> None:
    validated = {
        entry["step"]: entry["figures"] for entry in read_lines(course.stage_dir / "steps.jsonl") if entry["event"] == "validated"
    }
    assert list(validated) == [0, STEPS]
    assert {figures["rollouts"] for figures in validated.values()} == {2}
    assert list_policies(course.stage_dir) == [STEPS]
    assert read_canary(locate_policy(course.stage_dir, STEPS))  # of which the engine that validated found all tokens
    adapter_dir = course.stage_dir / "adapter"
    check_adapter(EngineConfig(adapter=str(adapter_dir)))
    assert "the method `grpo`" in (adapter_dir / "README.md").read_text()
    weights = "adapter_model.safetensors"
    assert (adapter_dir / weights).read_bytes() == (locate_policy(course.stage_dir, STEPS) / weights).read_bytes()
    verify_stage(course.stage_dir)


def test_a_finished_run_is_skipped(course: Course) -> None:
    config = RunConfig.model_validate({**OPTIONS, "run_dir": course.stage_dir.parent})
    (manifest,) = run_stages([STAGES["rl"]], config).values()
    assert (manifest.counts["steps"], manifest.counts["published_step"]) == (STEPS, STEPS)
    limits = config.model_copy(update={"rl": config.rl.model_copy(update={"max_kl": 0.1})})
    assert run_stages([STAGES["rl"]], limits) == {"rl": manifest}
