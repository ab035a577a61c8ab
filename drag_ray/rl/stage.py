"""The rl stage: engines roll questions out and a trainer learns from them, step after step, in turns or at the same time.

Engines and trainer start once. Each policy of the trainer is an adapter of its own to the engines, which take it without a
restart.
"""

import contextlib
import logging
import shutil
import time
import uuid
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ray.train.v2.api.exceptions import TrainingFailedError

from drag_ray.agent.record import AgentRecord
from drag_ray.agent.task import Policy, compute_seed
from drag_ray.cluster.metrics import open_stage_recorder
from drag_ray.cluster.nodes import OTHER_SHARE, count_gpus, find_engine_pool, find_seeing, free_gpus, takes_gpus
from drag_ray.corpus.near_duplicates import read_near_duplicates
from drag_ray.corpus.questions import draw_questions, draw_split, read_split
from drag_ray.engine.sampling import PRESETS
from drag_ray.errors import ConfigError, DataError, DragRayError, TrainError
from drag_ray.finetune.config import TrainJob
from drag_ray.finetune.outcome import CURVE_NAME
from drag_ray.finetune.publication import Description
from drag_ray.finetune.training_process import build_trainer, describe_failure, publish
from drag_ray.finetune.workers import size_workers
from drag_ray.format.split import TRAIN, VALIDATION, assign_sides
from drag_ray.rl.batches import build_batch, describe, score
from drag_ray.rl.config import RlSections
from drag_ray.rl.learning import (
    POLICIES_DIR_NAME,
    ROWS_NAME,
    LearningJob,
    drop_policies,
    list_policies,
    locate_policy,
    locate_step,
    read_figures,
    run_learning,
)
from drag_ray.rl.ledger import LEDGER_NAME, StepLedger, draw_next
from drag_ray.rl.limits import find_breach
from drag_ray.rollout import journal
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.engine_pool import keep_engines
from drag_ray.rollout.folder import TRAJECTORIES_DIR_NAME
from drag_ray.rollout.options import WorkerOptions, build_options
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import run_plan
from drag_ray.search.index import read_fingerprint
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import write_bytes, write_json, write_jsonl
from drag_ray.storage.file_access import create_mark, list_folder
from drag_ray.storage.json_text import parse_json
from drag_ray.types import Question

_logger = logging.getLogger(__name__)

VALIDATION_DIR_NAME = "validation"
_FIGURES_NAME = "figures.json"
_TRAIN_DIR_NAME = "train"
_GREEDY = "greedy"
_POLL_S = 0.1
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
    options = build_options(sections.agent, sections.engine, sections.rollout, index_dir, stage_dir, inputs.find("embed"))
    engine = options.engine.model_copy(update={"max_lora_rank": find_rank(sections.finetune.lora_r)})
    options = replace(options, engine=engine, stored=inputs.list_stored())
    devices = plan_devices(sections)
    with _keeping_engines(), _learning(sections, options, devices) as learning:
        course = Course(sections, options, devices, sides, learning)
        course.run()
    counts = course.summarise()
    lineage = inputs.read_lineage()
    fingerprints = {stage: manifest.fingerprint for stage, manifest in lineage.items()}
    record = AgentRecord(agent=sections.agent, index_fingerprint=read_fingerprint(index_dir / "search_index"))
    described = Description(sections.training, counts, fingerprints, record)
    start_dir = sections.find_start()
    published = locate_policy(stage_dir, counts["published_step"])
    publish(published, sections.engine.model, described, start_dir.resolve() if start_dir else None, stage_dir)
    return counts


@dataclass(frozen=True)
class Devices:
    """The devices of both sides: engines as `rollout` has them, trainers on GPUs or not, and whether they take turns on them."""

    rollout: RolloutConfig
    num_trainers: int
    trains_on_gpu: bool
    shares_gpu: bool


def plan_devices(sections: RlSections) -> Devices:
    """One GPU for each trainer, of which there is one if nothing is said, and the others for engines; a single one for both.

    Raises:
        ConfigError: both sides are to work at the same time, and share a GPU.
    """
    trains_on_gpu, rollout = takes_gpus(sections.finetune.device), sections.rollout
    num_trainers, num_gpus = sections.finetune.num_workers or 1, count_gpus()
    if not (trains_on_gpu and takes_gpus(sections.engine.device)):
        return Devices(rollout, num_trainers, trains_on_gpu, shares_gpu=False)
    num_engines = (num_gpus - num_trainers) // sections.engine.tensor_parallel_size * rollout.engines_per_gpu
    shares_gpu = num_engines < 1
    if shares_gpu and sections.rl.max_lag:
        raise ConfigError(
            f"rl.max_lag {sections.rl.max_lag}: engines and trainers share {num_gpus} GPU(s) and have to take turns. Leave it 0, "
            "or take one GPU more."
        )
    if not shares_gpu and not rollout.num_engines:
        rollout = rollout.model_copy(update={"num_engines": num_engines})
    return Devices(rollout, num_trainers, trains_on_gpu, shares_gpu)


def find_rank(lora_r: int) -> int:
    """The lowest of vLLM's ranks that an adapter fits into: on a CPU an engine's time grows with it."""
    return next((rank for rank in (1, 8, 16, 32, 64, 128, 256, 320, 512) if rank >= lora_r), lora_r)


def split_questions(sections: RlSections, inputs: Inputs) -> dict[str, list[Question]]:
    """The training questions by side: those to train on, and those to validate on, as the format stage would part them.

    Raises:
        DataError: there is none to train on.
    """
    index_dir, written_dir = inputs["index"], inputs.find("questions")
    questions = draw_split(index_dir, "train", 0, sections.seed, written_dir=written_dir)
    evaluation = read_split(index_dir, "test", written_dir)
    near_duplicates = read_near_duplicates(index_dir, questions, written_dir)
    sides = assign_sides(questions, evaluation, sections.format, near_duplicates)
    of_side = {side: [question for question in questions if sides[question.id] == side] for side in (TRAIN, VALIDATION)}
    if not of_side[TRAIN]:
        raise DataError(
            f"{index_dir}: none of {len(questions)} training questions is left to train on; the others ask what evaluation asks, "
            f"or are kept for validation. Lower format.validation_fraction, or split by question (format.split_by)."
        )
    limit = sections.rl.validation_limit if sections.rl.validation_steps else 0
    of_side[VALIDATION] = draw_questions(of_side[VALIDATION], limit, sections.seed) if limit else []
    return of_side


@contextlib.contextmanager
def _keeping_engines() -> Generator[None]:
    """Keep engines over all steps, as a pipeline does over all stages."""
    with contextlib.nullcontext() if find_engine_pool() else keep_engines():
        yield


class Learning:
    """The training, which runs beside this process."""

    def __init__(self, stage_dir: Path, outcome: "Future[Any]", max_failures: int) -> None:
        self._stage_dir = stage_dir
        self._outcome = outcome
        self._max_failures = max_failures

    def wait_for(self, step: int) -> None:
        """Return when the policy of a step is there.

        Raises:
            DragRayError: training has ended before.
        """
        while not locate_policy(self._stage_dir, step).is_dir():
            if self._outcome.done():
                self._explain()
            time.sleep(_POLL_S)

    def _explain(self) -> None:
        try:
            found = self._outcome.result().return_value
        except TrainingFailedError as error:
            raise describe_failure(error, self._max_failures, self._stage_dir / _TRAIN_DIR_NAME) from error
        if isinstance(found, DragRayError):
            raise found
        raise TrainError(f"{self._stage_dir}: training has ended before its last step. Start the stage again.")


@contextlib.contextmanager
def _learning(sections: RlSections, options: WorkerOptions, devices: Devices) -> Generator[Learning]:
    """Train within the context; what is being learned at its end is learned to its end."""
    settings, stage_dir = sections.training, options.run_dir
    seeing = find_seeing(stage_dir, use_gpu=devices.trains_on_gpu)
    workers = size_workers(devices.num_trainers, seeing, use_gpu=devices.trains_on_gpu)
    start_dir = sections.find_start()
    train = TrainJob(
        config=settings,
        model=sections.engine.model,
        train_path=Path(),
        validation_path=Path(),
        image_dirs=options.image_dirs,
        use_gpu=devices.trains_on_gpu,
        num_workers=workers.num_workers,
        num_threads=workers.num_cpus,
        start_dir=start_dir.resolve() if start_dir else None,
    )
    stop_path = stage_dir / f".stop-{uuid.uuid4().hex}"
    job = LearningJob(
        train,
        stage_dir,
        stop_path,
        PRESETS[sections.rl.preset].temperature or 1.0,
        sections.rl.steps,
        sections.rl.updates,
        devices.shares_gpu,
    )
    # It stays while rollouts want the CPUs; memory is what every process takes.
    gpu = {"GPU": OTHER_SHARE if devices.shares_gpu else 1, "CPU": 1}
    resources = gpu if devices.trains_on_gpu else {"CPU": 0, "memory": 1}
    trainer = build_trainer(run_learning, {"job": job}, settings, workers, resources, stage_dir / _TRAIN_DIR_NAME, seeing)
    with ThreadPoolExecutor(1, "training") as beside:
        outcome = beside.submit(trainer.fit)
        try:
            yield Learning(stage_dir, outcome, settings.max_failures)
        finally:
            create_mark(stop_path)
            with contextlib.suppress(Exception):  # it was said already, or comes too late to matter
                outcome.result(timeout=_END_S)
            stop_path.unlink(missing_ok=True)


class Course:
    """The steps of a run.

    Args:
        sections: of the stage.
        options: of workers, whose policy is that of the start.
        devices: as of `plan_devices`.
        sides: questions, as of `split_questions`.
        learning: the training.
    """

    def __init__(
        self,
        sections: RlSections,
        options: WorkerOptions,
        devices: Devices,
        sides: dict[str, list[Question]],
        learning: Learning,
    ) -> None:
        self._sections, self._settings = sections, sections.rl
        self._options, self._devices, self._learning = options, devices, learning
        self._stage_dir = options.run_dir
        self._questions = {question.id: question for question in sides[TRAIN]}
        self._validation = sides[VALIDATION]
        self._ledger = StepLedger(self._stage_dir / LEDGER_NAME)
        self._recorder = open_stage_recorder(self._stage_dir)
        for scratch in list_folder(self._stage_dir / POLICIES_DIR_NAME, ".*"):  # of a process that was killed
            shutil.rmtree(scratch)

    def run(self) -> None:
        """Take all steps that have not been taken."""
        self._learning.wait_for(0)
        self._validate(0)
        num_steps, max_lag = self._settings.steps, self._settings.max_lag
        num_settled = len(self._ledger.read_figures("trained"))
        for step in range(num_settled + 1, num_steps + 1):
            self._begin(step, max(0, step - 1 - max_lag))
            self._sample(step)
            for earlier in range(num_settled + 1, (num_steps if step == num_steps else step - max_lag) + 1):
                self._settle(earlier)
                num_settled = earlier

    def _begin(self, step: int, oldest: int) -> None:
        """Draw the questions of a step, and note the newest policy, `oldest` or later, as what rolls them out."""
        if self._ledger.find_policy(step) is None:
            self._learning.wait_for(oldest)
            self._draw(step, list_policies(self._stage_dir)[-1], self._settings.questions_per_step)

    def _draw(self, step: int, policy: int, number: int) -> bool:
        """Draw further questions for a step; False where there are no others."""
        drawn = draw_next(list(self._questions), self._sections.seed, self._ledger.num_drawn, number)
        taken = self._ledger.find_questions(step)
        fresh = [name for name in drawn if name not in taken]
        fresh = drawn[: drawn.index(next(name for name in drawn if name in taken))] if len(fresh) < len(drawn) else drawn
        if fresh:
            self._ledger.add({"event": "drawn", "step": step, "policy": policy, "questions": fresh})
        return bool(fresh)

    def _sample(self, step: int) -> None:
        """Roll out a step, with other questions for those that teach nothing, and hand its rows to the trainer."""
        folder, policy = locate_step(self._stage_dir, step), self._ledger.find_policy(step)
        if (folder / ROWS_NAME).exists():
            return
        assert policy is not None
        settings, began = self._settings, time.monotonic()
        seed = compute_seed(self._sections.seed, f"step {step}")
        while True:
            names = self._ledger.find_questions(step)
            asked = [self._questions[name] for name in names if name in self._questions]
            label = f"rl step {step}"
            paths = self._roll_out(folder, policy, asked, settings.preset, settings.samples_per_question, seed, label)
            batch = build_batch(score(paths, self._sections.process), self._sections.rows)
            missing = settings.questions_per_step - len(batch.learned)
            refills = self._ledger.count_draws(step) - 1
            if missing <= 0 or refills >= settings.refills or not self._draw(step, policy, missing):
                break
        lag, seconds = step - 1 - policy, round(time.monotonic() - began, 2)
        figures = {
            "policy": policy,
            "lag": lag,
            "questions": len(names),
            "learned": len(batch.learned),
            "rollout_seconds": seconds,
        }
        write_json(folder / _FIGURES_NAME, batch.figures | figures)
        if self._devices.shares_gpu:
            free_gpus()
        write_bytes(folder / ROWS_NAME, batch.lines)

    def _roll_out(
        self, folder: Path, policy: int, questions: Sequence[Question], preset: str, samples: int, seed: int, label: str
    ) -> list[Path]:
        """The files of the rollouts of questions with a policy. Those that are there are not run again."""
        adapter = str(locate_policy(self._stage_dir, policy))
        options = replace(self._options, run_dir=folder, policies={"": Policy(self._sections.engine.model, adapter)})
        folder.mkdir(parents=True, exist_ok=True)
        run_plan(build_plan(questions, (preset,), samples, seed), options, self._devices.rollout, label)
        return journal.list_files(folder, TRAJECTORIES_DIR_NAME)

    def _settle(self, step: int) -> None:
        """Wait until a step is trained, note what it came to, look at the limits, and validate where it is time."""
        self._learning.wait_for(step)
        of_rollouts = parse_json((locate_step(self._stage_dir, step) / _FIGURES_NAME).read_text(encoding="utf-8"))
        figures = of_rollouts | read_figures(self._stage_dir, step)
        self._ledger.add({"event": "trained", "step": step, "figures": figures})
        self._write_curve()
        self._recorder.set_progress("steps", step, self._settings.steps)
        self._recorder.set_point({name: value for name, value in figures.items() if isinstance(value, int | float)})
        said = ", ".join(f"{name} {figures[name]:.3g}" for name in ("reward", "kl", "entropy", "loss") if name in figures)
        _logger.info(f"rl step {step}/{self._settings.steps}: {said}, {figures['learned']} of {figures['questions']} questions")
        if step % (self._settings.validation_steps or step + 1) == 0 or step == self._settings.steps:
            self._validate(step)
        self._drop_policies(step)
        if breach := find_breach(step, figures, self._settings):
            raise TrainError(breach)

    def _validate(self, step: int) -> None:
        if not self._validation or step in self._ledger.read_figures("validated"):
            return
        folder = self._stage_dir / VALIDATION_DIR_NAME / f"{step:05}"
        label = f"rl validation {step}"
        paths = self._roll_out(folder, step, self._validation, _GREEDY, 1, self._sections.seed, label)
        figures = describe(score(paths, self._sections.process))
        self._ledger.add({"event": "validated", "step": step, "figures": figures})
        self._write_curve()
        _logger.info(f"rl step {step}/{self._settings.steps}: reward {figures['reward']:.3g} in validation")

    def _choose_best(self) -> int:
        """The step to publish: the best in validation after the start, the first of equals; the last without validation."""
        validated = self._ledger.read_figures("validated")
        trained = [step for step in sorted(validated) if step]
        return max(trained, key=lambda step: validated[step]["reward"], default=len(self._ledger.read_figures("trained")))

    def _drop_policies(self, settled: int) -> None:
        """Remove the policies that nobody needs any more: neither to roll out, nor to validate, nor to publish."""
        needed = {self._choose_best(), *range(max(0, settled - self._settings.max_lag), self._settings.steps + 1)}
        drop_policies(self._stage_dir, needed)

    def _write_curve(self) -> None:
        trained, validated = (self._ledger.read_figures(event) for event in ("trained", "validated"))
        points = [{"step": step, **figures} for step, figures in trained.items()]
        points += [
            {"step": step, **{f"eval_{name}": value for name, value in figures.items()}} for step, figures in validated.items()
        ]
        write_jsonl(self._stage_dir / CURVE_NAME, sorted(points, key=lambda point: point["step"]))

    def summarise(self) -> dict[str, Any]:
        """The counts of the stage."""
        trained, validated = (self._ledger.read_figures(event) for event in ("trained", "validated"))
        best, rewards = self._choose_best(), {step: figures["reward"] for step, figures in validated.items()}
        if rewards and rewards[best] <= rewards[0]:
            _logger.warning(
                f"rl: no policy is better in validation than the start ({rewards[0]:.4g}); that of step {best} is published "
                f"({rewards[best]:.4g})"
            )
        return {
            "steps": len(trained),
            "questions": self._ledger.num_drawn,
            "rollouts": sum(figures["rollouts"] for figures in trained.values()),
            "learned_questions": sum(figures["learned"] for figures in trained.values()),
            "first_reward": trained[1]["reward"],
            "last_reward": trained[len(trained)]["reward"],
            "eval_reward_before": rewards.get(0),
            "eval_reward_after": rewards.get(best),
            "published_step": best,
        }
