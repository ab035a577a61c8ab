"""The trainer's side of a run of reinforcement learning: it waits for the rows of each step, learns, and leaves its policy.

Both sides meet in the stage's folder alone: rows come to `steps/`, policies to `policies/`, each whole or not at all. A process
that starts again goes on from the last policy, so that no rows are learned twice.
"""

import logging
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.errors import ArtifactError, DragRayError, NotFiniteError
from drag_ray.finetune.config import TrainJob
from drag_ray.finetune.rows.tokenized_rows import read_rows
from drag_ray.messages import show_messages
from drag_ray.storage.artifacts import new_folder, write_json
from drag_ray.storage.file_access import create_mark, list_folder, reading, writing
from drag_ray.storage.json_text import parse_json

ROWS_NAME = "rows.jsonl"
STEPS_DIR_NAME = "steps"
POLICIES_DIR_NAME = "policies"
FIGURES_NAME = "figures.json"
_POLL_S = 0.02


@dataclass(frozen=True)
class LearningJob:
    """The job of a training process: see `PolicyLearner`. The mark at `stop_path` tells it to end."""

    train: TrainJob
    stage_dir: Path
    stop_path: Path
    temperature: float
    num_steps: int
    num_updates: int
    yields_gpu: bool


def locate_step(stage_dir: Path, step: int) -> Path:
    """The folder of a step's rollouts and rows."""
    return stage_dir / STEPS_DIR_NAME / f"{step:05}"


def locate_policy(stage_dir: Path, step: int) -> Path:
    """The folder of the policy after a step; that after step 0 is what training starts from."""
    return stage_dir / POLICIES_DIR_NAME / f"{step:05}"


def list_policies(stage_dir: Path) -> list[int]:
    """The steps whose policies are there, in order."""
    folder = stage_dir / POLICIES_DIR_NAME
    return sorted(int(path.name) for path in list_folder(folder) if path.name.isdecimal()) if folder.is_dir() else []


def read_figures(folder: Path) -> dict[str, Any]:
    """Figures in the folder of a step or of a policy. Raises ArtifactError where they are missing, or not what was written."""
    with reading(path := folder / FIGURES_NAME):
        return parse_json(path.read_bytes())


def drop_policies(stage_dir: Path, kept: Collection[int]) -> None:
    """Remove the policies before the last one that are not among the kept ones."""
    for step in list_policies(stage_dir)[:-1]:
        if step not in kept:
            with writing(folder := locate_policy(stage_dir, step)):
                shutil.rmtree(folder)


def run_learning(loop_config: dict[str, Any]) -> DragRayError | None:
    """Runs in each training process. What a restart cannot mend is returned, not raised, so that Ray does not try again."""
    show_messages()
    for name in ("", "ray.train"):
        logging.getLogger(name).setLevel(logging.WARNING)
    job: LearningJob = loop_config["job"]
    try:
        _learn(replace(job, train=replace(job.train, model=resolve_model(job.train.model))))
    except ArtifactError:
        raise
    except DragRayError as error:
        create_mark(job.stop_path)  # or the other processes would wait for its policy for ever
        return error
    return None


def _learn(job: LearningJob) -> None:
    from drag_ray.finetune.policy_learner import PolicyLearner

    done = list_policies(job.stage_dir)
    start = locate_policy(job.stage_dir, done[-1]) if done else None
    learner = PolicyLearner(job.train, job.temperature, job.num_steps, job.num_updates, start, yields_gpu=job.yields_gpu)
    if not done:
        _leave(learner, job, 0, {})
    for step in range(done[-1] + 1 if done else 1, job.num_steps + 1):
        rows_path = locate_step(job.stage_dir, step) / ROWS_NAME
        if not _wait_for(rows_path, job.stop_path):
            return
        began = time.monotonic()
        try:
            figures = learner.learn(read_rows(rows_path), step)
        except NotFiniteError as error:
            raise NotFiniteError(f"rl step {step}: {error}") from None
        _leave(learner, job, step, figures | {"train_seconds": round(time.monotonic() - began, 2)})


def _leave(learner: Any, job: LearningJob, step: int, figures: dict[str, Any]) -> None:
    """Write a policy, in one of the processes; the others wait until it is there."""
    folder = locate_policy(job.stage_dir, step)
    if learner.rank:
        _wait_for(folder, job.stop_path)
        return
    with new_folder(folder, ", from another process that still trains. Start the stage again when that has ended.") as scratch:
        learner.save(scratch)
        write_json(scratch / FIGURES_NAME, figures)


def _wait_for(path: Path, stop_path: Path) -> bool:
    """True when a path is there, False when it is time to end."""
    while not path.exists():
        if stop_path.exists():
            return False
        time.sleep(_POLL_S)
    return True
