"""One training process of an encoder: a trainer of sentence-transformers on questions with pages.

It knows nothing of Ray: it is given a function that takes its metrics and checkpoints.
"""

import math
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, set_seed
from transformers.utils.logging import disable_progress_bar

from drag_ray.cluster.metrics import StageRecorder
from drag_ray.engine.models.model_folder import locate_model
from drag_ray.errors import NotFiniteError, TrainError
from drag_ray.finetune.arguments import build_options
from drag_ray.finetune.config import TrainJob
from drag_ray.finetune.curve import ReportCallback, ReportFn, build_curve
from drag_ray.finetune.methods.encoder import EncoderMethod, Probe
from drag_ray.finetune.named import check_reporting, explain_refusal
from drag_ray.finetune.rows.training_rows import TrainingRows

_ROUNDING = 1e-5
"""By which scores, in float32, may differ without meaning anything."""


def train(
    job: TrainJob, rows: TrainingRows, report: ReportFn, resume_from: Path | None, recorder: StageRecorder
) -> dict[str, Any]:
    """Train to the end, from the checkpoint `resume_from` if there is one.

    Every process of the group calls this with all rows, and so calls `report` equally often. `recorder` takes how far it is.

    Returns:
        {"counts": {...}, "curve": [...], "attention": "...", "probe": Probe}: what was learned from, one point per step and per
        evaluation, what computed it, and what the trained model makes of a question.

    Raises:
        ConfigError: the model that training starts from cannot be read as one of this kind.
        NotFiniteError: loss, gradient, weights or scores are not finite.
        TrainError: the model has learned nothing.
    """
    method = job.config.chosen_method
    assert isinstance(method, EncoderMethod)
    disable_progress_bar()
    if not job.use_gpu:
        torch.set_num_threads(job.num_threads)
    set_seed(job.config.seed)  # also of a new head
    model = method.load(str(locate_model(job.model, method.option)), "cuda" if job.use_gpu else "cpu")
    model.model_card_data.generate_widget_examples = False  # the card is another
    question, passages = method.take_probe(rows.train.rows[0])
    before = method.score(model, question, passages)
    with tempfile.TemporaryDirectory(prefix="drag-ray-finetune-", dir=job.scratch_dir) as scratch_dir:
        options = build_options(job, "off", scratch_dir, rows.counts, resumes=resume_from is not None)
        validation = Dataset.from_list(rows.validation.rows) if rows.validation.rows else None
        with explain_refusal("arguments", job.config.arguments):
            trainer = method.build_trainer(model, options, Dataset.from_list(rows.train.rows), validation)
            check_reporting(trainer.args.report_to)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(ReportCallback(report, rows.counts, recorder))
        with explain_refusal("arguments", job.config.arguments, (ImportError,)):
            trainer.train(resume_from_checkpoint=str(resume_from) if resume_from else None)
    after = method.score(model.eval(), question, passages)
    _check_effect(before, after, trainer.state.global_step, job.config.learning_rate)
    return {
        "counts": rows.counts,
        "curve": build_curve(trainer.state.log_history),
        "attention": f"{torch.cuda.get_device_name() if job.use_gpu else 'cpu'}, torch {torch.__version__}",
        "probe": Probe(question=question, passages=passages, scores=after),
    }


def _check_effect(before: list[float], after: list[float], num_steps: int, learning_rate: float) -> None:
    if not all(map(math.isfinite, after)):
        raise NotFiniteError(f"the trained model's scores are not finite. Lower finetune.learning_rate ({learning_rate:g} now).")
    if max(abs(one - other) for one, other in zip(before, after, strict=True)) < _ROUNDING:
        raise TrainError(
            f"training has changed nothing: the model scores the pages of the first question as it did before. It took "
            f"{num_steps} steps at finetune.learning_rate {learning_rate:g}; raise one of the two."
        )
    if max(after) - min(after) < _ROUNDING:
        raise TrainError(
            "the trained model gives all pages of a question the same score. Lower finetune.learning_rate "
            f"({learning_rate:g} now), or start from another model."
        )
