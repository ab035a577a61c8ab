"""The tasks of Ray for a training: one task that tokenizes its rows, and the loop of each of its processes."""

import dataclasses
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
import ray.train

from drag_ray.cluster.metrics import name_tags, open_stage_recorder
from drag_ray.cluster.tasks import take_result
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.errors import ArtifactError, DragRayError
from drag_ray.finetune import checkpoints
from drag_ray.finetune.config import TrainJob
from drag_ray.messages import about, show_messages
from drag_ray.storage.file_access import writing

if TYPE_CHECKING:
    from drag_ray.finetune.training_rows import TrainingRows

_logger = logging.getLogger(__name__)


def tokenize(job: TrainJob) -> "TrainingRows":
    """Runs in the task. Raises what `tokenize_training_rows` does."""
    from drag_ray.finetune.training_rows import tokenize_training_rows

    show_messages()
    return tokenize_training_rows(_resolve(job))


def run_loop(loop_config: dict[str, Any]) -> dict[str, Any] | DragRayError:
    """Runs in each training process. What a restart cannot mend is returned, not raised, so that Ray does not try again."""
    show_messages()  # Ray brings to the driver what a worker prints
    for name in ("", "ray.train"):  # below it, Ray Train prints every report in full, and a line a checkpoint
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        job, checkpoints_dir = _resolve(loop_config["job"]), loop_config["checkpoints_dir"]
        last, flaws = checkpoints.find_last(checkpoints_dir)
        for flaw in flaws if ray.train.get_context().get_world_rank() == 0 else ():
            _logger.warning(f"finetune: passes over a checkpoint. {flaw}")
        with about(**name_tags(checkpoints_dir.parent)):
            rows, recorder = take_result(loop_config["rows"]), open_stage_recorder(checkpoints_dir.parent)
            return _find_trainer(job)(job, rows, partial(_report, checkpoints_dir), last, recorder)
    except ArtifactError:
        raise  # a disk that is full may have room again, and the other processes must not wait for this one
    except DragRayError as error:
        return error


def _find_trainer(job: TrainJob) -> Callable[..., dict[str, Any]]:
    """The function that trains, of a module that imports no more than it needs."""
    if job.config.chosen_method.trains_adapter:
        from drag_ray.finetune.trainer import train
    else:
        from drag_ray.finetune.encoder_trainer import train
    return train


def _resolve(job: TrainJob) -> TrainJob:
    """With the model's folder on this machine."""
    return dataclasses.replace(job, model=resolve_model(job.model))


def _report(checkpoints_dir: Path, metrics: dict[str, Any], checkpoint_dir: Path) -> None:
    checkpoint = ray.train.Checkpoint.from_directory(str(checkpoint_dir))
    with writing(checkpoints_dir):
        ray.train.report(metrics, checkpoint=checkpoint, checkpoint_upload_fn=_keep)


def _keep(checkpoint: ray.train.Checkpoint, name: str) -> ray.train.Checkpoint:
    """Copy a process's part of a checkpoint as Ray Train does, and seal the copy."""
    context = ray.train.get_context()
    storage: Any = context.get_storage()
    kept = storage.persist_current_checkpoint(checkpoint, name)
    checkpoints.seal(Path(checkpoint.path), Path(kept.path), context.get_world_rank(), context.get_world_size())
    return kept
