"""The finetune stage: Ray Train runs the training processes, keeps their checkpoints and starts them again when one dies."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from drag_ray.agent.record import AgentRecord
from drag_ray.cluster.nodes import SharedPathNodes, find_seeing, free_gpus, takes_gpus
from drag_ray.corpus import image_store, question_images
from drag_ray.engine.models.adapter import check_adapter
from drag_ray.errors import DamageError, DataError, DragRayError, GpuMemoryError, NotFiniteError
from drag_ray.finetune.config import FinetuneConfig, FinetuneSections, TrainJob
from drag_ray.finetune.outputs import checkpoints
from drag_ray.finetune.rows.tokenized_rows import read_rows
from drag_ray.finetune.training_folder import CURVE_NAME, Description
from drag_ray.finetune.training_process import Workers, build_trainer, fit, publish, run_loop, size_workers, tokenize
from drag_ray.rollout.folder import IMAGES_DIR_NAME
from drag_ray.search.index import read_fingerprint
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import write_jsonl

_logger = logging.getLogger(__name__)
OWN_ROWS_DIR_NAME = "own_rows"

Outcome = dict[str, Any] | DragRayError | None


def run(sections: FinetuneSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Train what the chosen method trains on its rows and write it, an adapter merged too if `merge` says so, into the folder.

    A stage that was killed goes on from its last checkpoint, as training does after the death of a worker, and once in a start
    after numbers that are not finite, which hardware can be the cause of.

    Returns:
        the counts of the stage: rows, steps, losses before and after, tokens, and what computed attention.

    Raises:
        ArtifactError: no space is left, or a folder cannot be read or written.
        ConfigError: the adapter that training is to start from cannot be used.
        DataError: there are no training rows, or they cannot be read.
        SearchIndexError: the index that the rows were collected with is not there as it was.
        NotFiniteError: loss, gradient or weights were not finite, twice.
        GpuMemoryError: a batch does not fit into a GPU's memory.
        TrainError: the model cannot be trained so, has learned nothing, or workers died too often.
    """
    settings, start_dir = sections.finetune, _find_start(sections)
    model = settings.chosen_method.find_start_model(sections.engine.model)
    stage_dir = folder.path.resolve()
    rows_dir = _write_own_rows(settings, stage_dir) if settings.data else _find_rows(settings, inputs["format"].resolve())
    index_dir, record = inputs.find("index"), _build_record(inputs)
    of_index = [index_dir.resolve() / name for name in (image_store.DIR_NAME, question_images.DIR_NAME)] if index_dir else []
    of_rows = rows_dir.parent / IMAGES_DIR_NAME
    image_dirs = (*([of_rows] if of_rows.is_dir() else []), *of_index)
    arguments = (model, start_dir, rows_dir, image_dirs, stage_dir, compares_prompts(sections, inputs))
    train = partial(_train_within_memory, lambda smaller: _train(smaller, *arguments), settings)
    outcome = train()
    if isinstance(outcome, NotFiniteError):
        _logger.warning(f"finetune: resuming from the last checkpoint, once. {outcome}")
        outcome = train()
    if isinstance(outcome, DragRayError):
        raise outcome
    assert outcome is not None
    write_jsonl(stage_dir / CURVE_NAME, outcome["curve"])
    counts = {**_summarise(outcome["counts"], outcome["curve"]), "attention": outcome["attention"]}
    if doubt := settings.chosen_method.diagnose(counts, read_rows(rows_dir / "validation.jsonl")):
        _logger.warning(f"finetune: {doubt}")
    lineage = inputs.read_lineage()
    fingerprints = {stage: manifest.fingerprint for stage, manifest in lineage.items()}
    row_options = lineage["format"].origin["config"].get("format", {}) if "format" in lineage else {}
    described = Description(settings, counts, fingerprints, record, row_options, outcome.get("probe"))
    checkpoints.clear_unfinished(stage_dir / checkpoints.DIR_NAME)  # of processes that died on the way
    publish(_find_trained(stage_dir / checkpoints.DIR_NAME, counts["steps"]), model, described, start_dir, stage_dir)
    return counts


def _find_rows(settings: FinetuneConfig, format_dir: Path) -> Path:
    row_format = settings.chosen_method.row_format
    rows_dir = format_dir / row_format
    if not (rows_dir / "train.jsonl").exists():
        raise DataError(f"{rows_dir}: no train.jsonl. Run: python jobs/format.py --format.formats {row_format}")
    return rows_dir


def _write_own_rows(settings: FinetuneConfig, stage_dir: Path) -> Path:
    from drag_ray.finetune.rows.own_rows import write_own_rows  # with what reads questions and their images

    rows_dir = stage_dir / OWN_ROWS_DIR_NAME / settings.method
    write_own_rows(settings.data, settings.validation_data, rows_dir, pairs=settings.method == "dpo")
    return rows_dir


def _find_start(sections: FinetuneSections) -> Path | None:
    """The adapter whose weights are trained on, absolute. Raises what `check_adapter` does."""
    folder = sections.find_start()
    if folder is None:
        return None
    check_adapter(sections.engine)
    return folder.resolve()


def compares_prompts(sections: FinetuneSections, inputs: Inputs) -> bool:
    """True if rows are refused whose prompts differ from the engine's: those of a teacher, another model, may be others."""
    collected = inputs.read_lineage().get("collect")
    writer = collected.origin["config"].get("engine", {}).get("model") if collected else None
    return sections.finetune.compare_prompts and writer == sections.engine.model


def _train_within_memory(train: Callable[[FinetuneConfig], Outcome], settings: FinetuneConfig) -> Outcome:
    """The outcome of `train`, with fewer rows at once where they have to be (`halve_batch`)."""
    try:
        outcome = train(settings)
    except GpuMemoryError as error:  # of one of several processes
        outcome = error
    if not isinstance(outcome, GpuMemoryError):
        return outcome
    size = settings.batch_size
    factor = next((number for number in range(2, size + 1) if size % number == 0), 0)
    if not factor:
        remedy = "finetune.gradient_checkpointing, a lower finetune.max_length, or finetune.quantization nf4"
        return GpuMemoryError(f"{outcome}\nNo fewer rows can be learned at once. Set {remedy}.")
    smaller = {"batch_size": size // factor, "gradient_accumulation": settings.gradient_accumulation * factor}
    named = f"finetune.batch_size {smaller['batch_size']} and finetune.gradient_accumulation {smaller['gradient_accumulation']}"
    if not settings.halve_batch:
        return GpuMemoryError(f"{outcome}\nSet {named}, as finetune.halve_batch does, or finetune.gradient_checkpointing.")
    _logger.warning(f"finetune: continues with {named}. {outcome}")
    return _train_within_memory(train, settings.model_copy(update=smaller))


def _train(
    settings: FinetuneConfig,
    model: str,
    start_dir: Path | None,
    rows_dir: Path,
    image_dirs: tuple[Path, ...],
    stage_dir: Path,
    compares: bool,
) -> Outcome:
    """As `run_loop`, in all processes."""
    use_gpu = takes_gpus(settings.device)
    seeing = find_seeing(stage_dir, use_gpu=use_gpu)
    workers = size_workers(settings.num_workers, seeing, use_gpu=use_gpu)
    gpu_share = free_gpus() if use_gpu else 0
    _announce(workers, seeing)
    checkpoints_dir = stage_dir / checkpoints.DIR_NAME
    checkpoints.clear_unfinished(checkpoints_dir)
    job = TrainJob(
        config=settings,
        model=model,
        train_path=rows_dir / "train.jsonl",
        validation_path=rows_dir / "validation.jsonl",
        image_dirs=image_dirs,
        use_gpu=use_gpu,
        num_workers=workers.num_workers,
        num_threads=workers.num_cpus,
        start_dir=start_dir,
        compares_prompts=compares,
    )
    loop_config = {"job": job, "rows": _begin_to_tokenize(job, seeing), "checkpoints_dir": checkpoints_dir}
    resources = {"CPU": workers.num_cpus} | ({"GPU": gpu_share} if use_gpu else {})
    trainer = build_trainer(run_loop, loop_config, settings, workers, resources, checkpoints_dir, seeing)
    return fit(trainer, checkpoints_dir)


def _begin_to_tokenize(job: TrainJob, seeing: SharedPathNodes) -> Any:
    """The rows of a training, as a reference: they are tokenized once for all processes, which start meanwhile.

    That is done on one of their nodes, where the model is, and takes none of the CPUs, all of which they may want.
    """
    name = next(iter(seeing.names), ray.get_runtime_context().get_node_id())
    there: Any = NodeAffinitySchedulingStrategy(name, soft=True)
    task: Any = ray.remote(num_cpus=0, scheduling_strategy=there)(tokenize)
    return task.remote(job)


def _find_trained(checkpoints_dir: Path, num_steps: int) -> Path:
    """The checkpoint of the last step. Raises DamageError where it is not what was written."""
    last, flaws = checkpoints.find_last(checkpoints_dir)
    if last is None or checkpoints.read_step(last) != num_steps:
        raise DamageError(
            f"{checkpoints_dir}: the checkpoint of step {num_steps} is damaged ({'; '.join(flaws) or 'it is gone'}). "
            "Start the stage again: it resumes from the last whole one, or begins again."
        )
    return last


def _announce(workers: Workers, seeing: SharedPathNodes) -> None:
    _logger.info(f"finetune: {workers.describe()}")
    missing = workers.list_missing(seeing)
    if missing:
        _logger.info(f"finetune: waits until the cluster has {missing} more; lower finetune.num_workers if it cannot grow")


def _build_record(inputs: Inputs) -> AgentRecord | None:
    """The record of the adapter: it is asked as the trajectories behind its rows were collected; None if they are of elsewhere.

    The options of the collection are part of what the rows are known by, so another agent means another training.
    """
    collected, index_dir = inputs.read_lineage().get("collect"), inputs.find("index")
    agent = collected.origin["config"].get("agent") if collected else None
    if not agent:
        return None
    fingerprint = read_fingerprint(index_dir / "search_index") if index_dir else ""
    return AgentRecord.model_validate({"agent": agent, "index_fingerprint": fingerprint})


def _summarise(counts: dict[str, int], curve: list[dict[str, Any]]) -> dict[str, Any]:
    steps = [point for point in curve if "loss" in point]
    evaluations = [point["eval_loss"] for point in curve if "eval_loss" in point]
    accuracies = [point["eval_pair_accuracy"] for point in curve if "eval_pair_accuracy" in point]
    return {
        **counts,
        "steps": steps[-1]["step"],
        "epochs": round(steps[-1]["epoch"], 3),
        "first_loss": steps[0]["loss"],
        "last_loss": steps[-1]["loss"],
        "eval_loss_before": evaluations[0] if evaluations else None,
        "eval_loss_after": evaluations[-1] if evaluations else None,
        **({"eval_pair_accuracy": accuracies[-1]} if accuracies else {}),
        "tokens": steps[-1]["tokens"],
        "tokens_per_s": round(steps[-1]["tokens"] / max(steps[-1]["seconds"], 1e-9), 1),
    }
