"""The rl stage: engines roll questions out and a trainer learns from them, step after step, in turns or at the same time.

Engines and trainer start once. Each policy of the trainer is an adapter of its own to the engines, which take it without a
restart.
"""

import contextlib
import logging
import shutil
import time
import uuid
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from drag_ray.agent.record import AgentRecord
from drag_ray.agent.task import Policy
from drag_ray.cluster.nodes import OTHER_SHARE, count_gpus, end_engines, find_engine_pool, find_seeing, free_gpus, takes_gpus
from drag_ray.corpus.near_duplicates import read_near_duplicates
from drag_ray.corpus.questions import draw_questions, draw_split, read_split
from drag_ray.engine.sampling import PRESETS
from drag_ray.errors import ConfigError, DataError, DragRayError, TrainError
from drag_ray.finetune.config import TrainJob
from drag_ray.finetune.training_folder import Description
from drag_ray.finetune.training_process import GroupTrainer, build_trainer, fit, publish, size_workers
from drag_ray.format.split import TRAIN, VALIDATION, assign_sides
from drag_ray.rl.config import RlSections
from drag_ray.rl.course import Course, Draw, RollOut
from drag_ray.rl.learning import POLICIES_DIR_NAME, LearningJob, list_policies, locate_policy, run_learning
from drag_ray.rollout import journal
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.engine_pool import keep_engines
from drag_ray.rollout.folder import IMAGES_DIR_NAME, PROBLEMS_NAME, TRAJECTORIES_DIR_NAME
from drag_ray.rollout.options import WorkerOptions, build_options
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import prepare_engines, run_plan
from drag_ray.rollout.tool_hosts import host_tools
from drag_ray.rollout.worker_actors import KeptWorkers, MapChunks
from drag_ray.search.index import read_fingerprint
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.file_access import create_mark, list_folder
from drag_ray.types import Question

_logger = logging.getLogger(__name__)

_TRAIN_DIR_NAME = "train"
_IMAGES = Path("..", "..", IMAGES_DIR_NAME)
"""The one store of the images that rollouts make, from the folder of a step or of a validation."""
_NUM_VALIDATED = 100
_POLL_S = 0.02
_MOST_SHARED = 0.5
"""of a GPU's memory that an engine may have without a trainer on the same GPU having to wait until it is free"""
_END_S = 60
"""in which a trainer ends that is told to, after the step that it is at"""


def run(sections: RlSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Roll out and learn `rl.steps` times, and publish the policy that is best in validation, or the last.

    Going on after a kill takes each step up where it was: what was drawn stays drawn, what was rolled out is not rolled out
    again, and nothing is learned twice.

    Returns:
        Counts: steps, questions, rollouts, rewards at the first and the last step and in validation, and the published step.

    Raises:
        ConfigError: the options cannot be worked with on this cluster.
        DataError: there are no training questions, or rows cannot be learned.
        TrainError: a limit was passed, or training cannot go on.
        TooManyFailuresError: more rollouts of a step failed than `max_failure_rate` allows.
    """
    stage_dir, index_dir = folder.path.resolve(), inputs["index"]
    sides = split_questions(sections, inputs)
    options = build_options(
        *(sections.agent, sections.engine, sections.rollout, index_dir, stage_dir),
        *(inputs.find("embed"), inputs.find("questions")),
    )
    engine = options.engine.model_copy(update={"max_lora_rank": find_rank(sections.finetune.lora_r)})
    options = replace(options, engine=engine, stored=inputs.list_stored(), stage_dir=stage_dir)
    devices = plan_devices(sections)
    if options.image_dirs:
        (stage_dir / IMAGES_DIR_NAME).mkdir(exist_ok=True)
    if devices.trains_on_gpu and not devices.shares_gpu:
        end_engines()
    with _keeping_engines(), _learning(sections, options, devices) as learning, _rolling_out(options, devices) as roll_out:
        if not devices.shares_gpu and max(list_policies(stage_dir), default=0) < sections.rl.steps:
            # Beside the trainer. On a GPU of both an engine would take the trainer's memory for its own.
            prepare_engines(_follow(options, stage_dir, locate_policy(stage_dir, 0)), devices.rollout)
        course = Course(stage_dir, sections, sides, roll_out, learning.wait_for, free_gpus if devices.takes_turns else None)
        course.run()
    counts = course.summarise()
    if not counts["learned_questions"]:
        raise TrainError(
            f"{stage_dir}: nothing was learned, because the samples of every question had the same reward. Use harder questions, "
            "more of them (rl.questions_per_step) or more samples of each (rl.samples_per_question)."
        )
    lineage = inputs.read_lineage()
    fingerprints = {stage: manifest.fingerprint for stage, manifest in lineage.items()}
    record = AgentRecord(agent=sections.agent, index_fingerprint=read_fingerprint(index_dir / "search_index"))
    described = Description(sections.training, counts, fingerprints, record)
    published = locate_policy(stage_dir, counts["published_step"])
    publish(published, sections.engine.model, described, sections.find_start(), stage_dir)
    return counts


@dataclass(frozen=True)
class Devices:
    """The devices of both sides: engines as `rollout` has them, trainers on GPUs or not, whether both share one, and whether they
    take turns on it."""

    rollout: RolloutConfig
    num_trainers: int
    trains_on_gpu: bool
    shares_gpu: bool = False
    takes_turns: bool = False


def plan_devices(sections: RlSections) -> Devices:
    """One GPU for each trainer, of which there is one if nothing is said, and the others for engines; a single one for both.
    Raises ConfigError where both sides are to work at the same time and share a GPU, or there are too few GPUs for what is asked
    for."""
    trains_on_gpu, rollout = takes_gpus(sections.finetune.device), sections.rollout
    num_trainers, num_gpus = sections.finetune.num_workers or 1, count_gpus()
    if not (trains_on_gpu and takes_gpus(sections.engine.device)):
        return Devices(rollout, num_trainers, trains_on_gpu)
    parallel = sections.engine.tensor_parallel_size
    num_engines = (num_gpus - num_trainers) // parallel * rollout.engines_per_gpu
    shares_gpu = num_engines < 1
    if shares_gpu and (num_trainers > 1 or parallel > 1):
        raise ConfigError(
            f"finetune.num_workers {num_trainers} with engine.tensor_parallel_size {parallel}: the cluster has {num_gpus} "
            "GPU(s), and a GPU is shared by one trainer and an engine of one GPU alone. Lower one of them, or take more GPUs."
        )
    takes_turns = shares_gpu and sections.engine.gpu_memory_utilization > _MOST_SHARED
    if takes_turns and sections.rl.max_lag:
        raise ConfigError(
            f"rl.max_lag {sections.rl.max_lag}: engines and trainers share {num_gpus} GPU(s) and have to take turns. Leave it 0, "
            f"take one GPU more, or leave the trainer room: engine.gpu_memory_utilization {_MOST_SHARED} or less."
        )
    if rollout.num_engines > (most := max(1, num_engines)):
        raise ConfigError(
            f"rollout.num_engines {rollout.num_engines}: beside the trainers there are GPUs for {most} of the {num_gpus}. Lower "
            "it, or leave it 0 to take them all."
        )
    if not shares_gpu and not rollout.num_engines:
        rollout = rollout.model_copy(update={"num_engines": num_engines})
    return Devices(rollout, num_trainers, trains_on_gpu, shares_gpu, takes_turns)


def find_rank(lora_r: int) -> int:
    """The lowest of vLLM's ranks that an adapter fits into: on a CPU an engine's time grows with it."""
    return next((rank for rank in (1, 8, 16, 32, 64, 128, 256, 320, 512) if rank >= lora_r), lora_r)


def split_questions(sections: RlSections, inputs: Inputs) -> dict[str, list[Question]]:
    """The training questions by side: those to train on, and those to validate on, as the format stage would part them. Raises
    DataError where there is none to train on."""
    index_dir, written_dir = inputs["index"], inputs.find("questions")
    questions = draw_split(index_dir, "train", 0, sections.seed, written_dir=written_dir)
    evaluation = read_split(index_dir, "test", written_dir)
    near_duplicates = read_near_duplicates(index_dir, questions, written_dir)
    sides = assign_sides(questions, evaluation, sections.format, near_duplicates)
    of_side = {side: [question for question in questions if sides[question.id] == side] for side in (TRAIN, VALIDATION)}
    if not of_side[TRAIN]:
        raise DataError(
            f"{index_dir}: none of {len(questions)} training questions is left to train on; the others ask what evaluation asks, "
            "or are kept for validation. Lower format.validation_fraction, or split by question (format.split_by)."
        )
    validates = sections.rl.validation_steps > 0
    of_side[VALIDATION] = draw_questions(of_side[VALIDATION], _NUM_VALIDATED, sections.seed) if validates else []
    if validates and not of_side[VALIDATION]:
        _logger.warning("rl: no question is left to validate on (format.validation_fraction), so the last policy is published")
    return of_side


@contextlib.contextmanager
def _rolling_out(options: WorkerOptions, devices: Devices) -> Generator[RollOut]:
    """Keep workers over all steps, and the processes of their tools."""
    with host_tools(options, devices.rollout) as hosting, KeptWorkers() as workers:
        settings = devices.rollout.model_copy(update={"tool_hosts": ()})
        yield partial(_roll_out, hosting, settings, workers.map_chunks)


@contextlib.contextmanager
def _keeping_engines() -> Generator[None]:
    """Keep engines over all steps, as a pipeline does over all stages."""
    with contextlib.nullcontext() if find_engine_pool() else keep_engines():
        yield


class Learning:
    """The training, which runs beside this process."""

    def __init__(self, stage_dir: Path, outcome: "Future[DragRayError | None]") -> None:
        self._stage_dir = stage_dir
        self._outcome = outcome

    def wait_for(self, step: int) -> None:
        """Return when the policy of a step is there, or a later one. Raises DragRayError where training has ended before."""
        while max(list_policies(self._stage_dir), default=-1) < step:
            if self._outcome.done():
                raise self._outcome.result() or TrainError(
                    f"{self._stage_dir}: training has ended before its last step. Start the stage again."
                )
            time.sleep(_POLL_S)


@contextlib.contextmanager
def _learning(sections: RlSections, options: WorkerOptions, devices: Devices) -> Generator[Learning]:
    """Train within the context; what is being learned at its end is learned to its end, if that takes no longer than `_END_S`."""
    settings, stage_dir = sections.training, options.run_dir
    seeing = find_seeing(stage_dir, use_gpu=devices.trains_on_gpu)
    workers = size_workers(devices.num_trainers, seeing, use_gpu=devices.trains_on_gpu)
    train = TrainJob(
        config=settings,
        model=sections.engine.model,
        train_path=Path(),
        validation_path=Path(),
        image_dirs=(stage_dir / IMAGES_DIR_NAME, *options.image_dirs) if options.image_dirs else (),
        use_gpu=devices.trains_on_gpu,
        num_workers=workers.num_workers,
        num_threads=workers.num_cpus,
        start_dir=sections.find_start(),
    )
    for scratch in list_folder(stage_dir / POLICIES_DIR_NAME, ".*"):  # of a process that was killed
        shutil.rmtree(scratch, ignore_errors=True)  # or still ends; file systems leave files of their own there too
    stop_path = stage_dir / f".stop-{uuid.uuid4().hex}"
    job = LearningJob(
        *(train, stage_dir, stop_path, PRESETS[sections.rl.preset].temperature or 1.0),
        *(sections.rl.steps, sections.rl.updates, devices.takes_turns),
    )
    # It stays, or starts again, while workers have the CPUs; memory is what every process takes.
    resources: dict[str, float] = {"CPU": 0, "memory": 1}
    if devices.trains_on_gpu:
        resources = {"CPU": 0, "GPU": OTHER_SHARE if devices.shares_gpu else 1}
    trainer = build_trainer(run_learning, {"job": job}, settings, workers, resources, stage_dir / _TRAIN_DIR_NAME, seeing)
    try:
        with ThreadPoolExecutor(1, "training") as beside:  # which waits for the training's end
            outcome = beside.submit(fit, trainer, stage_dir / POLICIES_DIR_NAME)
            try:
                yield Learning(stage_dir, outcome)
            finally:
                create_mark(stop_path)
                _end(trainer, outcome)
    finally:
        stop_path.unlink(missing_ok=True)


def _end(trainer: GroupTrainer, outcome: "Future[DragRayError | None]") -> None:
    """Let a trainer that was told to end do so, and end it where that takes too long: its step is taken again later."""
    with contextlib.suppress(Exception):  # it was said already, or comes too late to matter
        try:
            outcome.result(timeout=_END_S)
        except TimeoutError:
            trainer.abandon()


def _roll_out(
    options: WorkerOptions, settings: RolloutConfig, map_chunks: MapChunks, folder: Path, policy_dir: Path, draw: Draw
) -> list[Path]:
    """`RollOut` by engines and workers that are kept."""
    if options.image_dirs and not (own := folder / IMAGES_DIR_NAME).exists():
        own.symlink_to(_IMAGES)
    plan = build_plan(draw.questions, (draw.preset,), draw.num_samples, draw.seed)
    counts = run_plan(plan, _follow(options, folder, policy_dir), settings, draw.label, map_chunks)
    if counts["unfinished"] or not counts["finished"]:  # what is learned without them would never be made up for
        raise TrainError(
            f"{draw.label}: {counts['finished']} of {len(plan)} rollouts have finished; see {folder / PROBLEMS_NAME}. Start the "
            "stage again: it goes on with the others, and with a larger rollout.max_tries with those that failed too often."
        )
    return journal.list_files(folder, TRAJECTORIES_DIR_NAME)


def _follow(options: WorkerOptions, folder: Path, policy_dir: Path) -> WorkerOptions:
    """Workers that roll out in a folder with the policy in another."""
    return replace(options, run_dir=folder, policies={"": Policy(options.engine.model, str(policy_dir))})
