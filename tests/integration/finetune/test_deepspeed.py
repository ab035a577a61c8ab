"""The finetune stage with DeepSpeed in two processes on CPUs, each of which holds a part of the gradients and of the optimizer's
state, and with ZeRO-3 of the weights too: they learn what one process learns that holds all of it."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from nano_training import kill_a_worker_after_the_first_checkpoint, make_config, make_nano_model, train_alone, write_rows
from safetensors.torch import load_file

from drag_ray.engine.models.model_files import ADAPTER_WEIGHTS_NAME
from drag_ray.finetune import stage
from drag_ray.finetune.outputs.served_proof import ask_folder, compute_reference, prove
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

pytestmark = pytest.mark.usefixtures("local_ray")

NUM_STEPS = 10
ROWS_A_STEP = 4
SEVERAL_CHECKPOINTS = 3
"""Steps between them: the first of four is noted seconds before the end."""
OPTIONS: dict[str, Any] = {"lora_dropout": 0, "learning_rate": 0.005, "checkpoint_steps": NUM_STEPS}


@pytest.fixture(scope="module")
def nano_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_nano_model(tmp_path_factory.mktemp("nano"), hidden_size=32)


@pytest.fixture(scope="module")
def alone(nano_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The adapter that one process trains with all rows of each step, and its curve."""
    return learn_alone(tmp_path_factory.mktemp("alone"), nano_model)


@pytest.fixture(scope="module")
def whole_alone(nano_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The curve of one process that trains all weights."""
    return learn_alone(tmp_path_factory.mktemp("whole"), nano_model, parts=["language"])[1]


def learn_alone(folder: Path, model: Path, start_dir: Path | None = None, **options: Any) -> tuple[Path, list[dict[str, Any]]]:
    write_rows(folder, NUM_STEPS * ROWS_A_STEP)
    _, curve = train_alone(folder, model, start_dir, batch_size=ROWS_A_STEP, **OPTIONS, **options)
    return folder / "adapter", curve


def learn_in_two_processes(run_dir: Path, model: Path, start_dir: Path | None = None, **options: Any) -> None:
    """The stage. A step has the rows that it has in one process."""
    if not (run_dir / "format").exists():
        write_rows(run_dir, NUM_STEPS * ROWS_A_STEP)
    shares = {"num_workers": 2, "batch_size": ROWS_A_STEP // 2}
    config = make_config(run_dir, model, start_dir, **(OPTIONS | shares | options))
    with StageFolder(run_dir / "finetune", Identity("finetune", {}, {})) as folder:
        run_code(STAGES["finetune"], config, folder)


def check_what_was_learned(finetune_dir: Path, model: Path, alone: tuple[Path, list[dict[str, Any]]]) -> None:
    """The same losses, and the same adapter, whole, which the merged model has in it."""
    expected_adapter, expected_curve = alone
    check_curve(finetune_dir, expected_curve)
    adapter, expected = (load_file(folder / ADAPTER_WEIGHTS_NAME) for folder in (finetune_dir / "adapter", expected_adapter))
    torch.testing.assert_close(adapter, expected, rtol=1e-4, atol=1e-5)  # names, shapes and types too
    assert len(adapter) == 2 * 2 * 7  # two matrices of each of seven modules in two layers
    assert min(weight.abs().max().item() for weight in adapter.values()) > 0.01
    prove(compute_reference(str(model), finetune_dir / "adapter"), ask_folder(finetune_dir / "merged"), "the merged model", "")


def check_curve(finetune_dir: Path, expected_curve: list[dict[str, Any]], rel: float = 1e-5) -> None:
    """Each step once, with the loss of one process. `rel`: by how much numbers may differ."""
    curve = [json.loads(line) for line in (finetune_dir / "curve.jsonl").read_text().splitlines()]
    steps, expected_steps = ([point for point in points if "loss" in point] for points in (curve, expected_curve))
    assert [point["step"] for point in steps] == list(range(1, NUM_STEPS + 1))  # none lost
    for name in ("loss", "learning_rate", "grad_norm", "tokens"):
        assert [point[name] for point in steps] == pytest.approx([point[name] for point in expected_steps], rel=rel), name
    for place in (0, -1):
        assert curve[place]["eval_loss"] == pytest.approx(expected_curve[place]["eval_loss"], rel=rel)


@pytest.mark.slow  # ZeRO-3 parts what ZeRO-2 does, and the weights too
def test_zero2_learns_what_one_process_does(tmp_path: Path, nano_model: Path, alone: tuple[Path, list[dict[str, Any]]]) -> None:
    learn_in_two_processes(tmp_path, nano_model, deepspeed="zero2")
    check_what_was_learned(tmp_path / "finetune", nano_model, alone)


def test_zero3_learns_what_one_process_does_though_one_of_its_own_is_killed(
    tmp_path: Path, nano_model: Path, alone: tuple[Path, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    killed: list[dict[str, str]] = []
    killer = threading.Thread(target=kill_a_worker_after_the_first_checkpoint, args=(tmp_path, killed))
    killer.start()
    learn_in_two_processes(tmp_path, nano_model, deepspeed="zero3", checkpoint_steps=SEVERAL_CHECKPOINTS)
    killer.join()
    assert killed
    printed = "".join(capsys.readouterr())
    assert printed.count(f"finetune step 1/{NUM_STEPS}: loss") == 1  # the second two did not begin at the beginning
    assert "built successfully" not in printed  # as DeepSpeed says of a kernel, and a machine may have no compiler
    assert "is deprecated" not in printed
    check_what_was_learned(tmp_path / "finetune", nano_model, alone)


@pytest.mark.parametrize("zero_stage", ["zero2", "zero3"])
def test_a_whole_model_learns_as_in_one_process_and_is_published_also_by_a_stage_that_is_killed_then(
    tmp_path: Path,
    nano_model: Path,
    whole_alone: list[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    zero_stage: str,
) -> None:
    options = {"deepspeed": zero_stage, "parts": ["language"], "checkpoint_steps": SEVERAL_CHECKPOINTS}
    with monkeypatch.context() as patch:
        patch.setattr(stage, "publish", end_stage)
        with pytest.raises(KeyboardInterrupt):
            learn_in_two_processes(tmp_path, nano_model, **options)
    checkpoints_dir = tmp_path / "finetune" / "checkpoints"
    (last,) = (path for path in checkpoints_dir.iterdir() if path.is_dir())  # the others are gone, and what they were written in
    assert not list(last.glob("global_step*"))
    capsys.readouterr()
    learn_in_two_processes(tmp_path, nano_model, **options)
    assert "finetune step" not in "".join(capsys.readouterr())
    check_curve(tmp_path / "finetune", whole_alone, rel=1e-4)  # of the norms of so many gradients
    published, base = (load_file(folder / "model.safetensors") for folder in (tmp_path / "finetune" / "model", nano_model))
    learned = load_file(last / "model.safetensors")  # of ZeRO-2 with the head, which is the embeddings' matrix once more
    torch.testing.assert_close(published, {name: learned[name] for name in base})
    assert not any(torch.equal(weight, base[name]) for name, weight in published.items())


def end_stage(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_zero3_goes_on_with_an_adapter_as_one_process_does(
    tmp_path: Path, nano_model: Path, alone: tuple[Path, list[dict[str, Any]]]
) -> None:
    start_dir, first_curve = alone
    on_alone = learn_alone(tmp_path / "alone", nano_model, start_dir)
    assert on_alone[1][0]["eval_loss"] == pytest.approx(first_curve[-1]["eval_loss"], rel=1e-5)
    learn_in_two_processes(tmp_path / "run", nano_model, start_dir, deepspeed="zero3")
    check_what_was_learned(tmp_path / "run" / "finetune", nano_model, on_alone)
