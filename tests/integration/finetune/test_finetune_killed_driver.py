"""The process that runs the finetune stage is killed, as by the system when memory runs out, and the stage started again."""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from nano_training import make_config, make_nano_model, write_rows
from repeated_kills import MARK, kill_and_resume

from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.finetune.outputs import checkpoints
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.stage_runs.damage import find_damage, verify_stage
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

NUM_ROWS = 120
NUM_STEPS = 60
CHECKPOINT_STEPS = 10


def run_stage(run_dir: Path, model: Path) -> None:
    """Run the stage on a Ray of its own."""
    config = make_config(run_dir, model, checkpoint_steps=CHECKPOINT_STEPS, merge=False)
    stage_dir = run_dir / "finetune"
    stage_folder = StageFolder(stage_dir, Identity("finetune", {}, {}), find_damage(stage_dir), repairs_in_place=True)
    with connect(ClusterConfig(num_cpus=1)), stage_folder as folder:
        (run_dir / MARK).touch()
        stage = STAGES["finetune"]
        folder.finish(run_code(stage, config, folder), stage.own_files)


def wait_for_two_checkpoints(run_dir: Path, driver: psutil.Process) -> None:
    while len(list_whole(run_dir)) < 2:
        assert driver.is_running()
        time.sleep(0.05)


def list_whole(run_dir: Path) -> list[Path]:
    """The checkpoints that have their seal, the latest last."""
    found = [seal.parent for seal in (run_dir / "finetune" / checkpoints.DIR_NAME).glob("*/whole-0-of-1-*.jsonl")]
    return sorted(found, key=checkpoints.read_step)


def damage_the_last_checkpoint(run_dir: Path) -> int:
    """Take the optimizer's state from it, and leave Ray Train's own file half written; returns the step of the one before."""
    *_, before, last = list_whole(run_dir)
    (last / "optimizer.pt").unlink()
    snapshot = run_dir / "finetune" / checkpoints.DIR_NAME / "checkpoint_manager_snapshot.json"
    snapshot.write_bytes(snapshot.read_bytes()[:100])
    return checkpoints.read_step(before)


@pytest.mark.slow
def test_a_killed_driver_takes_its_workers_along_and_the_next_one_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = make_nano_model(tmp_path / "model", hidden_size=32)
    write_rows(tmp_path, NUM_ROWS)
    process = multiprocessing.get_context("spawn").Process(target=run_stage, args=(tmp_path, model))
    process.start()
    assert process.pid is not None
    driver = psutil.Process(process.pid)
    wait_for_two_checkpoints(tmp_path, driver)
    started = driver.children(recursive=True)
    trainers = [child for child in started if "Train" in " ".join(child.cmdline())]
    assert trainers
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    _, alive = psutil.wait_procs(trainers, timeout=30)
    assert not alive  # none is left to write into the folder that the next driver goes on with
    for child in started:  # Ray's agents take half a minute to see that they are alone
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    assert not (tmp_path / "finetune" / "manifest.json").exists()
    assert "finetune step 1/60" in capfd.readouterr().out

    step = damage_the_last_checkpoint(tmp_path)
    run_stage(tmp_path, model)
    printed = "".join(capfd.readouterr())
    assert "optimizer.pt: is missing" in printed
    assert f"finetune step {step}/60" not in printed
    assert f"finetune step {step + 1}/60" in printed  # it began at the checkpoint before the damaged one
    assert "finetune step 60/60" in printed
    curve = [json.loads(line) for line in (tmp_path / "finetune" / "curve.jsonl").read_text().splitlines()]
    assert [point["step"] for point in curve if "loss" in point] == list(range(1, NUM_STEPS + 1))
    assert (tmp_path / "finetune" / "manifest.json").exists()
    assert (tmp_path / "finetune" / "adapter" / "adapter_model.safetensors").exists()

    weights = tmp_path / "finetune" / "adapter" / "adapter_model.safetensors"
    trained = weights.read_bytes()
    weights.write_bytes(trained[: len(trained) // 2])
    run_stage(tmp_path, model)
    printed = "".join(capfd.readouterr())
    assert "damaged (adapter/adapter_model.safetensors: has" in printed
    assert "finetune step" not in printed  # the last checkpoint has it
    assert weights.read_bytes() == trained


def read_losses(run_dir: Path) -> list[tuple[int, float]]:
    curve = [json.loads(line) for line in (run_dir / "finetune" / "curve.jsonl").read_text().splitlines()]
    return [(point["step"], point["loss"]) for point in curve if "loss" in point]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_training_that_is_killed_twenty_times_takes_every_step_once_as_an_undisturbed_one_does(tmp_path: Path) -> None:
    model, run_dir = make_nano_model(tmp_path / "model", hidden_size=32), tmp_path / "run"
    write_rows(run_dir, NUM_ROWS)
    undisturbed = list[list[tuple[int, float]]]()

    def check(folder: Path) -> None:
        verify_stage(folder / "finetune")
        undisturbed.append(read_losses(folder))
        assert [step for step, _ in undisturbed[-1]] == list(range(1, NUM_STEPS + 1))
        assert [loss for _, loss in undisturbed[-1]] == pytest.approx([loss for _, loss in undisturbed[0]], rel=1e-3)

    def reset(folder: Path) -> None:
        shutil.rmtree(folder / "finetune")

    kill_and_resume(run_dir, lambda folder: Started(folder, model), check, 20, reset)


class Started:
    """The process of a stage that was started, as `subprocess.Popen` has it."""

    def __init__(self, folder: Path, model: Path) -> None:
        self._process = multiprocessing.get_context("spawn").Process(target=run_stage, args=(folder, model))
        self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("finetune", timeout or 0)
        return self._process.exitcode
