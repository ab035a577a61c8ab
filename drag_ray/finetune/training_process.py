"""The parts of a training that are Ray's: a task that tokenizes its rows, the group of its processes, the loop of each, and a
task that publishes what they have trained."""

import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
import ray.train
from ray._common.constants import RAY_WARN_BLOCKING_GET_INSIDE_ASYNC_ENV_VAR
from ray._private.state import state as global_state
from ray._raylet import RAY_NODE_ID_KEY, PlacementGroupID  # pyright: ignore[reportAttributeAccessIssue]
from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # pyright: ignore[reportAttributeAccessIssue]
from ray.exceptions import RayError
from ray.train.backend import BackendConfig
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.constants import get_env_vars_to_propagate
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError, WorkerGroupError
from ray.util.placement_group import PlacementGroup, remove_placement_group

from drag_ray.cluster.metrics import name_tags, open_stage_recorder
from drag_ray.cluster.nodes import SharedPathNodes
from drag_ray.cluster.tasks import take_result
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.errors import ArtifactError, DragRayError, GpuMemoryError, TrainError
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.outputs import checkpoints
from drag_ray.messages import about, show_messages
from drag_ray.storage.file_access import writing

if TYPE_CHECKING:
    from drag_ray.finetune.rows.training_rows import TrainingRows
    from drag_ray.finetune.training_folder import Description

_logger = logging.getLogger(__name__)
_MAX_FAILURES = 2
"""times that training resumes from its last checkpoint after a worker died"""
_CPU_ENVIRONMENT = {
    # Each step asks for the same large blocks again. glibc would give them back to the system every time, and the
    # system would clear them every time: 110 instead of 79 tokens a second on two cores.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "-1",
    # Ray's own processes need the cores too: a thread that spins while it waits takes them from the one it waits for.
    "OMP_WAIT_POLICY": "PASSIVE",
}
_GPU_ENVIRONMENT = {
    # Batches are of many lengths, and blocks that cannot grow are kept for each: the recipe's SFT had 48 GiB without, 40 with it.
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"
}


@dataclass(frozen=True)
class Workers:
    """Training processes that are alike: `num_cpus` cores each, and a GPU if `use_gpu` says so."""

    num_workers: int
    num_cpus: int
    use_gpu: bool

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of each."""
        return _GPU_ENVIRONMENT if self.use_gpu else _CPU_ENVIRONMENT

    def describe(self) -> str:
        """The number of workers and what each takes, in words."""
        return f"{self.num_workers} worker(s), each {self.num_cpus} CPU{' and 1 GPU' if self.use_gpu else ''}"

    def list_missing(self, seeing: SharedPathNodes) -> dict[str, int]:
        """CPUs and GPUs that these nodes lack for all workers."""
        wanted = {"CPU": self.num_workers * self.num_cpus, "GPU": self.num_workers if self.use_gpu else 0}
        there = {"CPU": seeing.num_cpus, "GPU": seeing.num_gpus}
        return {unit: amount - there[unit] for unit, amount in wanted.items() if amount > there[unit]}


def size_workers(wanted: int, seeing: SharedPathNodes, *, use_gpu: bool) -> Workers:
    """One worker a GPU, or one on CPUs, where it is not said how many are wanted.

    On CPUs each takes its share of the largest node, as if they were spread evenly.

    Args:
        wanted: 0 where nothing is said.
        seeing: the nodes that they may run on; none where the cluster has yet to grow.
    """
    if use_gpu:
        return Workers(wanted or max(1, seeing.num_gpus), 1, True)
    num_workers = wanted or 1
    largest = max((node.cpus for node in seeing.nodes), default=1)
    return Workers(num_workers, max(1, largest // math.ceil(num_workers / max(1, len(seeing.nodes)))), False)


def tokenize(job: TrainJob) -> "TrainingRows":
    """Runs in the task. Raises what `tokenize_training_rows` does."""
    from drag_ray.finetune.rows.training_rows import tokenize_training_rows

    show_messages()
    return tokenize_training_rows(_resolve(job))


def run_loop(loop_config: dict[str, Any]) -> dict[str, Any] | DragRayError:
    """Runs in each training process. What a restart cannot mend is returned, not raised, so that Ray does not try again."""
    show_messages()  # Ray brings to the driver what a worker prints
    for name in ("", "ray.train"):  # below it, Ray Train prints every report in full, and a line a checkpoint
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        job = divide_steps(_resolve(loop_config["job"]), ray.train.get_context().get_world_size())
        checkpoints_dir = loop_config["checkpoints_dir"]
        last, flaws = checkpoints.find_last(checkpoints_dir)
        rank = ray.train.get_context().get_world_rank()
        for flaw in flaws if rank == 0 else ():
            _logger.warning(f"finetune: passes over a checkpoint. {flaw}")
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(checkpoints_dir.parent / "tensorboard"))  # where it is wanted
        with about(**name_tags(checkpoints_dir.parent)), checkpoints.open_scratch(checkpoints_dir, rank) as scratch_dir:
            rows, recorder = take_result(loop_config["rows"]), open_stage_recorder(checkpoints_dir.parent)
            job = replace(job, scratch_dir=scratch_dir)
            return _find_trainer(job)(job, rows, partial(_report, checkpoints_dir), last, recorder)
    except ArtifactError:
        raise  # a disk that is full may have room again, and the other processes must not wait for this one
    except DragRayError as error:
        return error


def divide_steps(job: TrainJob, num_workers: int) -> TrainJob:
    """A training with the processes that there are: each takes more batches a step where they are fewer than those wanted, and
    step for step it learns from the same rows. Raises TrainError where the batches of a step cannot be divided so."""
    num_batches = job.num_workers * job.config.gradient_accumulation
    if num_batches % num_workers:
        raise TrainError(
            f"the cluster has room for {num_workers} of {job.num_workers} workers, which cannot share the {num_batches} batches "
            "of a step evenly. Start the stage again, which resumes from its last checkpoint, when there is room for a number of "
            f"workers that divides {num_batches}."
        )
    config = job.config.model_copy(update={"gradient_accumulation": num_batches // num_workers})
    return replace(job, config=config, num_workers=num_workers)


def _find_trainer(job: TrainJob) -> Callable[..., dict[str, Any]]:
    """The function that trains, of a module that imports no more than it needs."""
    if job.config.chosen_method.trains_adapter:
        from drag_ray.finetune.trainer import train
    else:
        from drag_ray.finetune.encoder_trainer import train
    return train


def _resolve(job: TrainJob) -> TrainJob:
    """With the model's folder on this machine."""
    return replace(job, model=resolve_model(job.model))


def _report(checkpoints_dir: Path, metrics: dict[str, Any], checkpoint_dir: Path) -> None:
    checkpoint = ray.train.Checkpoint.from_directory(str(checkpoint_dir))
    with writing(checkpoints_dir):
        ray.train.report(metrics, checkpoint=checkpoint, checkpoint_upload_fn=_keep)


def _keep(checkpoint: ray.train.Checkpoint, name: str) -> ray.train.Checkpoint:
    """Keep a process's part of a checkpoint where Ray Train would copy it to."""
    context = ray.train.get_context()
    storage: Any = context.get_storage()
    kept = storage.build_checkpoint_path_from_name(name)
    checkpoints.keep(Path(checkpoint.path), Path(kept), context.get_world_rank(), context.get_world_size())
    return ray.train.Checkpoint(kept, storage.storage_filesystem)


def build_trainer(
    loop: Callable[[dict[str, Any]], Any],
    loop_config: dict[str, Any],
    settings: FinetuneConfig,
    workers: Workers,
    resources: dict[str, float],
    folder: Path,
    seeing: SharedPathNodes,
) -> "GroupTrainer":
    """The group of processes that train."""
    least = settings.min_workers
    return GroupTrainer(
        loop,
        train_loop_config=loop_config,
        backend_config=_choose_backend(settings, workers),
        scaling_config=ray.train.ScalingConfig(
            num_workers=(min(least, workers.num_workers), workers.num_workers) if least else workers.num_workers,
            use_gpu=workers.use_gpu,
            label_selector=seeing.selector,
            resources_per_worker=resources,
        ),
        run_config=ray.train.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent),
            failure_config=ray.train.FailureConfig(max_failures=_MAX_FAILURES),
            # Those of whole weights are large. One that is whole is there always; with two, damage to the last one costs less.
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1 if settings.trains_whole else 2),
            worker_runtime_env={"env_vars": workers.environment},
        ),
    )


class GroupTrainer(DataParallelTrainer):
    """A trainer of Ray Train that leaves Ctrl-C to the program, where Ray would have the training fail, and handle Ctrl-C for
    good, and that gives back what a training had, whatever ends it.

    It does without Ray's cleaner, which gives back what a training had whose controller is gone. That asks the Ray which was
    started last on the machine for the controller: of another one's it is told that there is none, and ends the training.
    """

    _controller: Any = None

    def _create_default_callbacks(self) -> list[Any]:
        return [one for one in super()._create_default_callbacks() if not isinstance(one, PlacementGroupCleanerCallback)]

    def _initialize_and_run_controller(self, **options: Any) -> Any:
        """As that of Ray Train, in any thread."""
        here = {RAY_NODE_ID_KEY: ray.get_runtime_context().get_node_id()}
        settings = {RAY_WARN_BLOCKING_GET_INSIDE_ASYNC_ENV_VAR: "0", **get_env_vars_to_propagate()}
        controller: Any = ray.remote(num_cpus=0, label_selector=here, runtime_env={"env_vars": settings})(TrainController)
        self._controller = controller.remote(**options)
        try:
            ray.get(self._controller.run.remote())
            return ray.get(self._controller.get_result.remote())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """End the training's processes, for the controller's end is theirs, and give back what they had."""
        if self._controller is not None:
            ray.kill(self._controller)
            _remove_placement_groups(self._controller)


def _remove_placement_groups(controller: Any) -> None:
    """Those that it has made: Ray would keep them until the job ends."""
    accessor: Any = global_state._connect_and_get_accessor()  # pyright: ignore[reportPrivateUsage], as the public table names no maker
    for group in map(PlacementGroupTableData.FromString, accessor.get_placement_group_table()):
        if group.creator_actor_id == controller._actor_id.binary() and group.state != PlacementGroupTableData.REMOVED:
            remove_placement_group(PlacementGroup(PlacementGroupID(group.placement_group_id)))


def fit(trainer: GroupTrainer, folder: Path) -> Any:
    """Train in a folder; returns what the loop does in the first of the processes. Raises what `describe_failure` returns."""
    try:
        return trainer.fit().return_value
    except TrainingFailedError as error:
        raise describe_failure(error, folder) from error


def describe_failure(error: TrainingFailedError, checkpoints_dir: Path) -> DragRayError:
    """The cause that ended a training: what the disk refused to a process or to Ray itself, or else all that Ray says."""
    worker_failures = error.worker_failures.values() if isinstance(error, WorkerGroupError) else ()
    for failure in worker_failures:
        reason = getattr(failure, "_base_exc", failure)  # what `UserExceptionWithTraceback` holds
        if isinstance(reason, ArtifactError):
            return reason
        # PyTorch's, which this process does without. Ray has one of the same name, for the memory of a node.
        if type(reason).__name__ == "OutOfMemoryError" and type(reason).__module__.startswith("torch"):
            return GpuMemoryError(str(reason))
    if isinstance(error, ControllerError) and isinstance(error.controller_failure, OSError):
        failure = error.controller_failure
        return ArtifactError(
            f"{checkpoints_dir}: cannot be written ({failure.strerror or failure}). Free some space or choose another --run-dir; "
            "started again, the stage goes on from its last checkpoint."
        )
    return TrainError(
        f"training stopped (it restarts at most {_MAX_FAILURES} times): {error}\n"
        "Start the stage again to go on from its last checkpoint; if memory ran out, lower finetune.batch_size."
    )


def _choose_backend(settings: FinetuneConfig, workers: Workers) -> BackendConfig:
    """PyTorch's process group where it is needed: its rendezvous listens on every address, and asks for no token."""
    if workers.num_workers == 1 and settings.deepspeed in ("auto", "off"):
        return BackendConfig()
    from ray.train.torch import TorchConfig  # and PyTorch, which the process that starts the others does without

    return TorchConfig(backend="nccl" if workers.use_gpu else "gloo")


def publish(checkpoint_dir: Path, model: str, described: "Description", start_dir: Path | None, stage_dir: Path) -> None:
    """`publish_adapter`, `publish_model` or `publish_encoder` in a process of its own, so that its memory is given back; raises
    what it does."""

    from drag_ray.finetune.outputs.publication import publish_adapter, publish_encoder, publish_model

    if not described.settings.chosen_method.trains_adapter:
        publish = publish_encoder
    elif described.settings.trains_whole:
        publish = publish_model
    else:
        publish = partial(publish_adapter, start_dir=start_dir)
    task: Any = ray.remote(num_cpus=1)(lambda: publish(checkpoint_dir, model, described, stage_dir=stage_dir))
    try:
        ray.get(task.remote())
    except RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, DragRayError):
            raise cause from None
        last_words = str(cause or error).strip().rpartition("\n")[2]
        raise TrainError(
            f"{stage_dir}: a model was trained and could not be written ({type(cause or error).__name__}: {last_words}). "
            "Start the stage again: it resumes from its last checkpoint."
        ) from error
