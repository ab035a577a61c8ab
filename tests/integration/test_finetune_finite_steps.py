"""A training that is not finite stops at the step: whole ones, of models with random weights, that break in different ways."""

from pathlib import Path

import pytest
from training_cases import ADAPTER_METHODS, NUM_ROWS, write_job, write_model

from drag_ray.errors import NotFiniteError, TrainError
from drag_ray.finetune.config import TrainJob
from drag_ray.finetune.trainer import train
from drag_ray.finetune.training_rows import tokenize_training_rows

TOO_MUCH = 1e39
"""More than float32 can hold."""


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def run(job: TrainJob) -> list[int]:
    """Train and return the steps of the checkpoints that were reported; an error has them too, as `steps`."""
    steps: list[int] = []
    try:
        train(job, tokenize_training_rows(job), lambda metrics, checkpoint_dir: steps.append(metrics["step"]), None)
    except TrainError as error:
        error.steps = steps  # type: ignore[attr-defined]
        raise
    return steps


@pytest.mark.parametrize("method", ADAPTER_METHODS)
def test_weights_that_run_away_stop_the_training_at_the_next_step(method: str, model_dir: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, model_dir, {"method": method, "learning_rate": 1e30})
    with pytest.raises(
        NotFiniteError, match=r"finetune step 2: loss \S+, gradient norm nan.*learning_rate .*1e\+30 now"
    ) as caught:
        run(job)
    assert caught.value.steps == [1]  # type: ignore[attr-defined]


def test_a_broken_row_is_named(model_dir: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, model_dir, {"method": "grpo"}, changed={2: {"advantage": TOO_MUCH}})
    with pytest.raises(NotFiniteError, match=r"Rows of the step, by their line in train\.jsonl: 3 \(q2-0\)\. ") as caught:
        run(job)
    steps = caught.value.steps  # type: ignore[attr-defined]
    assert f"finetune step {len(steps) + 1}:" in str(caught.value)


def test_the_first_step_is_not_laid_to_the_learning_rate(model_dir: Path, tmp_path: Path) -> None:
    changed = {number: {"advantage": TOO_MUCH} for number in range(NUM_ROWS)}
    job = write_job(tmp_path, model_dir, {"method": "grpo"}, changed)
    with pytest.raises(NotFiniteError, match=r"finetune step 1: .*one of these rows is broken, or the base model"):
        run(job)


@pytest.mark.parametrize("method", ["sft", "reward"])
def test_a_training_that_changes_nothing_is_refused(method: str, model_dir: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, model_dir, {"method": method, "learning_rate": 1e-12})
    with pytest.raises(TrainError, match=r"training has changed nothing.*training row 1 \(q0-0\).*learning_rate 1e-12"):
        run(job)
