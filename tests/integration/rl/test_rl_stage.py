"""Reinforcement learning while collecting, with the real engine and model: a run that comes to its end at once, and one whose
engine, trainer and driver are killed, and that goes on."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import wait_until
from word_rl import OPTIONS, STEPS, check_course, read_lines, read_rollouts, write_index

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.adapter import check_adapter
from drag_ray.engine.models.canary import read_canary
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_stages
from drag_ray.pipeline.stages import STAGES
from drag_ray.rl.learning import ROWS_NAME, list_policies, locate_policy, locate_step
from drag_ray.rollout.folder import LOGS_DIR_NAME, TRAJECTORIES_DIR_NAME

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.timeout(900)


def start(run_dir: Path, ray_address: str, log: Path) -> subprocess.Popen[bytes]:
    script = (
        "import json, sys; from drag_ray.api.run import open_run; options = json.loads(sys.argv[1])\n"
        "with open_run(sys.argv[2], cluster={'address': sys.argv[3]}, **options) as run: run.rl()"
    )
    command = [sys.executable, "-c", script, json.dumps(OPTIONS), str(run_dir), ray_address]
    return subprocess.Popen(command, cwd=ROOT, stdout=log.open("wb"), stderr=subprocess.STDOUT)


@dataclass(frozen=True)
class Course:
    """A stage that came to its end, and what there was of it, of rollouts by step, when its driver was killed, if it was."""

    stage_dir: Path
    ledger_before: list[dict[str, Any]]
    rollouts_before: dict[int, dict[str, tuple[str, str]]]


@pytest.fixture(scope="module", params=["undisturbed", pytest.param("killed", marks=pytest.mark.slow)])
def course(request: pytest.FixtureRequest, ray_address: str, tmp_path_factory: pytest.TempPathFactory) -> Course:
    folder = tmp_path_factory.mktemp("rl")
    run_dir = folder / "run"
    write_index(run_dir)
    killed = kill_all(run_dir, ray_address, folder / "first.log") if request.param == "killed" else ([], {})
    process = start(run_dir, ray_address, folder / "second.log")
    assert process.wait(timeout=500) == 0, (folder / "second.log").read_text(errors="replace")[-3000:]
    return Course(run_dir / "rl", *killed)


def kill_all(run_dir: Path, ray_address: str, log: Path) -> tuple[list[dict[str, Any]], dict[int, dict[str, tuple[str, str]]]]:
    """Kill the engine within the rollouts of the first step, the trainer within its training, and the driver within the rollouts
    of the second; the ledger and the rollouts as they are then."""
    stage_dir, process = run_dir / "rl", start(run_dir, ray_address, log)

    def wait_for(condition: Callable[[], object]) -> None:
        def holds() -> object:
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            return condition()

        wait_until(holds, 400)

    def kill(name: str) -> None:
        killed = list[psutil.Process]()
        for found in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if " ".join(found.cmdline()).startswith(name):  # what it is at follows
                    found.kill()
                    killed.append(found)
        assert len(killed) == 1

    def list_finished(step: int) -> list[Path]:
        return list(locate_step(stage_dir, step).glob(f"{TRAJECTORIES_DIR_NAME}/*"))

    wait_for(lambda: list_finished(1))
    kill("ray::EngineActor")
    wait_for((locate_step(stage_dir, 1) / ROWS_NAME).exists)
    kill("ray::RayTrainWorker")
    assert list_policies(stage_dir) == [0]
    wait_for(lambda: list_finished(2))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (locate_step(stage_dir, 2) / ROWS_NAME).exists()
    return read_lines(stage_dir / "steps.jsonl"), {step: read_rollouts(stage_dir, step) for step in (1, 2)}


def test_no_group_is_skipped_and_none_is_trained_twice(course: Course) -> None:
    check_course(course.stage_dir)
    ledger = read_lines(course.stage_dir / "steps.jsonl")
    assert ledger[: len(course.ledger_before)] == course.ledger_before
    for step, before in course.rollouts_before.items():  # what was there is not rolled out again
        assert before.items() <= read_rollouts(course.stage_dir, step).items()


def test_engine_and_worker_stay_and_write_with_the_policy_of_the_step_before(course: Course) -> None:
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
    assert read_canary(locate_policy(course.stage_dir, STEPS))  # of which the engine that validated found all tokens
    adapter_dir = course.stage_dir / "adapter"
    check_adapter(EngineConfig(adapter=str(adapter_dir)))
    assert "the method `grpo`" in (adapter_dir / "README.md").read_text()
    weights = "adapter_model.safetensors"
    assert (adapter_dir / weights).read_bytes() == (locate_policy(course.stage_dir, STEPS) / weights).read_bytes()


def test_a_finished_run_is_skipped(course: Course) -> None:
    config = RunConfig.model_validate({**OPTIONS, "run_dir": course.stage_dir.parent})
    (manifest,) = run_stages([STAGES["rl"]], config).values()
    assert (manifest.counts["steps"], manifest.counts["published_step"]) == (STEPS, STEPS)
    limits = config.model_copy(update={"rl": config.rl.model_copy(update={"max_kl": 0.1})})
    assert run_stages([STAGES["rl"]], limits) == {"rl": manifest}
