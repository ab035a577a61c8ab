"""A checkpoint that was written in part, or damaged later, is never gone on from; an adapter is published whole or not at all."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from file_layer import ERRORS, fail_each_access, limit_files
from lost_power import list_losses, record_states
from ray.exceptions import OutOfMemoryError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError, WorkerGroupError
from safetensors import safe_open
from training_cases import NUM_ROWS, write_job, write_model
from transformers import Trainer

from drag_ray.errors import ArtifactError, DamageError, GpuMemoryError, TrainError
from drag_ray.finetune.config import TrainJob
from drag_ray.finetune.outputs import checkpoints
from drag_ray.finetune.outputs.checkpoints import (
    clear_unfinished,
    find_flaw,
    find_last,
    is_finished,
    keep,
    open_scratch,
    read_step,
    saving,
)
from drag_ray.finetune.outputs.publication import publish_adapter
from drag_ray.finetune.rows.training_rows import tokenize_training_rows
from drag_ray.finetune.stage import _find_trained
from drag_ray.finetune.trainer import train
from drag_ray.finetune.training_folder import ADAPTER_DIR_NAME, MERGED_DIR_NAME, Description
from drag_ray.finetune.training_process import describe_failure
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import sync

pytestmark = pytest.mark.seconds

SNAPSHOT = "checkpoint_manager_snapshot.json"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
    """A training of four steps with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("job")
    return write_job(folder, write_model(folder / "model"), {"method": "sft", "lora_r": 2, "learning_rate": 0.01})


@pytest.fixture(scope="module")
def trained(job: TrainJob, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of the whole training, as Ray Train keeps them."""
    folder = tmp_path_factory.mktemp("trained")
    train(job, tokenize_training_rows(job), keep_in(folder), None)
    assert [read_step(path) for path in sorted(folder.iterdir())] == [1, 2, 3, 4]
    return folder


def keep_in(folder: Path) -> Callable[[dict[str, Any], Path], None]:
    def report(metrics: dict[str, Any], checkpoint_dir: Path) -> None:
        keep(checkpoint_dir, folder / f"checkpoint_{read_step(checkpoint_dir)}", 0, 1)

    return report


def copy_last_two(trained: Path, folder: Path) -> Path:
    for step in (NUM_ROWS - 1, NUM_ROWS):
        shutil.copytree(trained / f"checkpoint_{step}", folder / f"checkpoint_{step}")
    return folder


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [remove, cut, change])
def test_each_file_counts(trained: Path, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    last = trained / f"checkpoint_{NUM_ROWS}"
    names = sorted(path.name for path in last.iterdir())
    assert {"adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"} <= set(names)
    for name in names:
        folder = copy_last_two(trained, tmp_path / name)
        harm(folder / last.name / name)
        found, flaws = find_last(folder)
        assert found == folder / f"checkpoint_{NUM_ROWS - 1}", name
        if name != "trainer_state.json" or harm is change:  # without its step it comes after the others
            assert len(flaws) == 1
            assert name in flaws[0] or "was not written to its end" in flaws[0]
        assert find_flaw(folder / last.name)
        with pytest.raises(DamageError, match=rf"the checkpoint of step {NUM_ROWS} .* resumes from the last whole one"):
            _find_trained(folder, NUM_ROWS)


def test_a_training_that_passes_over_damage_comes_to_the_same_end(job: TrainJob, trained: Path, tmp_path: Path) -> None:
    folder = copy_last_two(trained, tmp_path / "checkpoints")
    (folder / f"checkpoint_{NUM_ROWS}" / "optimizer.pt").unlink()  # of which transformers would say nothing
    last, _ = find_last(folder)
    shutil.rmtree(folder / f"checkpoint_{NUM_ROWS}")
    rows = tokenize_training_rows(job)
    outcome = train(job, rows, keep_in(folder), last)
    assert find_last(folder) == (folder / f"checkpoint_{NUM_ROWS}", [])
    # Once more, as after a kill before the manifest was written: there is nothing left to train, and it comes to the same.
    again = train(job, rows, lambda metrics, checkpoint_dir: pytest.fail("reported"), folder / f"checkpoint_{NUM_ROWS}")
    assert (again["counts"], again["curve"]) == (outcome["counts"], outcome["curve"])
    ends = [parent / f"checkpoint_{NUM_ROWS}" / "adapter_model.safetensors" for parent in (folder, trained)]
    assert ends[0].read_bytes() == ends[1].read_bytes()


def test_the_parts_of_all_processes_are_needed(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    for rank in range(2):
        assert rank == 0 or find_flaw(folder) == "was not written to its end"
        write_files({f"rng_state_{rank}.pth": b"state"}, tmp_path / f"of_{rank}")
        keep(tmp_path / f"of_{rank}", folder, rank, 2)
    assert find_flaw(folder) == ""
    (folder / "rng_state_1.pth").unlink()
    assert find_flaw(folder) == "rng_state_1.pth: is missing, 5 bytes were written"


@pytest.mark.parametrize("state", ["", "[]", '{"global_step": null}', '{"global_step": NaN}', '{"global_step": 1e400}'])
def test_a_state_that_says_no_step_is_of_no_step(tmp_path: Path, state: str) -> None:
    (tmp_path / "trainer_state.json").write_text(state)
    assert read_step(tmp_path) == -1
    assert not is_finished(tmp_path)


def find_lie(checkpoints_dir: Path, new_name: str) -> str:
    """Name the part that a new, sealed checkpoint lacks, or say that no checkpoint is whole."""
    found, _ = find_last(checkpoints_dir)
    is_sealed = any((checkpoints_dir / new_name).glob("whole-*"))
    return "no checkpoint is whole" if found is None else find_flaw(checkpoints_dir / new_name) if is_sealed else ""


@pytest.mark.parametrize("forgotten", ["nothing", "files", "folders"])
def test_a_loss_of_power_leaves_no_seal_without_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str) -> None:
    kept, left = tmp_path / "checkpoints", tmp_path / "left"
    kept.mkdir()

    def keep_next(number: int) -> None:
        with open_scratch(kept, 0) as written:
            write_files({"trainer_state.json": b'{"global_step": 2}'}, written)
            write_files({"weights.bin": b"shard"}, written / "global_step2")
            keep(written, kept / f"checkpoint_{number}", 0, 1)

    def keep_second() -> None:
        keep_next(2)
        shutil.rmtree(kept / "checkpoint_1")  # as Ray Train removes those that are too many

    def sync_some(path: Path) -> None:  # the proof that the test would fail
        if forgotten == "nothing" or path.is_dir() != (forgotten == "folders"):
            sync(path)

    keep_next(1)
    for module in (artifacts, checkpoints):
        monkeypatch.setattr(module, "sync", sync_some)

    def find_lies() -> Iterator[str]:
        for _, write in list_losses(record_states(kept, monkeypatch, keep_second), num_random=0):
            write(left)
            yield find_lie(left, "checkpoint_2")

    if forgotten == "nothing":
        lies = list(find_lies())
        assert set(lies) == {""}
        assert len(lies) > 100
    else:
        assert any(find_lies())


def test_what_a_killed_training_leaves_is_cleared(trained: Path, tmp_path: Path) -> None:
    folder = copy_last_two(trained, tmp_path)
    kept = sorted(path.name for path in folder.iterdir())
    snapshot = json.dumps({"checkpoint_results": [{"checkpoint_dir_name": name, "metrics": {}} for name in kept]})
    (folder / "checkpoint_5").mkdir()
    (folder / "checkpoint_5" / "optimizer.pt").write_text("half")
    (folder / ".written-1-abc" / "checkpoint-5").mkdir(parents=True)
    for text in (snapshot[:-20], "", "[1]", snapshot.replace("checkpoint_3", "checkpoint_9")):
        (folder / SNAPSHOT).write_text(text)
        clear_unfinished(folder)
        assert sorted(path.name for path in folder.iterdir()) == kept
    (folder / SNAPSHOT).write_text(snapshot)
    clear_unfinished(folder)
    assert sorted(path.name for path in folder.iterdir()) == [*kept, SNAPSHOT]
    clear_unfinished(tmp_path / "not there yet")


def test_a_checkpoint_that_ray_train_did_not_come_to_note_goes_when_a_later_one_is_whole(tmp_path: Path) -> None:
    def keep_step(step: int, name: str, num_workers: int = 1) -> None:
        write_files({"trainer_state.json": json.dumps({"global_step": step}).encode()}, tmp_path / "of_0")
        keep(tmp_path / "of_0", folder / name, 0, num_workers)

    def clear(*known: str) -> set[str]:
        (folder / SNAPSHOT).write_text(json.dumps({"checkpoint_results": [{"checkpoint_dir_name": name} for name in known]}))
        clear_unfinished(folder)
        return {path.name for path in folder.glob("checkpoint_*/")}

    folder = tmp_path / "checkpoints"
    folder.mkdir()
    keep_step(1, "checkpoint_1")
    keep_step(2, "checkpoint_2")  # a kill before it was noted: the first goes when Ray Train notes the third
    assert clear("checkpoint_1") == {"checkpoint_1", "checkpoint_2"}
    keep_step(3, "checkpoint_3a", num_workers=2)  # of which one was killed before its seal
    assert clear("checkpoint_1") == {"checkpoint_1", "checkpoint_2", "checkpoint_3a"}
    keep_step(3, "checkpoint_3b")
    assert clear("checkpoint_3b") == {"checkpoint_3b"}


def test_a_process_that_still_writes_stops_no_other_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".written-0-abc").mkdir()
    (tmp_path / ".written-0-abc" / "optimizer.pt").touch()
    unlink = os.unlink

    def unlink_while_it_writes(*args: Any, **options: Any) -> None:
        (tmp_path / ".written-0-abc" / "scheduler.pt").touch()
        unlink(*args, **options)

    monkeypatch.setattr(os, "unlink", unlink_while_it_writes)
    clear_unfinished(tmp_path)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.glob("*/*")] == ["scheduler.pt"]
    clear_unfinished(tmp_path)
    assert not list(tmp_path.iterdir())


every_error = pytest.mark.parametrize(
    ("error", "step"),
    [pytest.param(error, step, marks=[pytest.mark.slow] if step == 1 else []) for error in ERRORS for step in (1, 7)],
)


def write_files(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, data in sorted(files.items()):
        (folder / name).write_bytes(data)


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@every_error
def test_a_checkpoint_that_is_moved_and_sealed(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, step: int
) -> None:
    """As a training process keeps it, and the next one looks for it."""
    before, last = trained / f"checkpoint_{NUM_ROWS - 1}", trained / f"checkpoint_{NUM_ROWS}"
    sealed = read_files(last)

    def prepare(folder: Path) -> None:
        shutil.copytree(before, folder / "checkpoints" / before.name)

    def keep_last(folder: Path) -> None:
        clear_unfinished(folder / "checkpoints")
        with open_scratch(folder / "checkpoints", 0) as scratch:
            with saving(scratch):
                write_files({name: data for name, data in sealed.items() if not name.startswith("whole-")}, scratch)
            keep(scratch, folder / "checkpoints" / last.name, 0, 1)
        find_last(folder / "checkpoints")

    def check(folder: Path) -> None:
        found, _ = find_last(folder / "checkpoints")
        assert found is not None
        assert found.name == before.name or read_files(found) == sealed

    fail_each_access(tmp_path, monkeypatch, error, prepare, keep_last, check, step)


@every_error
def test_an_adapter_that_is_published(
    job: TrainJob, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, step: int
) -> None:
    described = Description(job.config.model_copy(update={"merge": False}), {"rows": 4}, {"format": "0123"}, None)
    last = trained / f"checkpoint_{NUM_ROWS}"

    def publish(folder: Path) -> None:
        publish_adapter(folder / last.name, job.model, described, None, folder)

    def check(folder: Path) -> None:
        adapter_dir = folder / ADAPTER_DIR_NAME
        if adapter_dir.exists():
            assert {"adapter_config.json", "drag_ray_base.json", "README.md", "tokenizer.json"} <= set(read_files(adapter_dir))
            for name in ("adapter_model.safetensors", "adapter_config.json", "tokenizer.json"):
                assert (adapter_dir / name).read_bytes() == (last / name).read_bytes()

    def prepare(folder: Path) -> None:
        folder.mkdir()
        (folder / last.name).symlink_to(last)

    fail_each_access(tmp_path, monkeypatch, error, prepare, publish, check, step)


@pytest.mark.parametrize(
    "name",
    [
        "optimizer.pt",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("adapter_model.safetensors", "scheduler.pt", "trainer_state.json")
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_written_is_not_reported(
    job: TrainJob, trained: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    num_bytes = (trained / "checkpoint_1" / name).stat().st_size - 1
    save = Trainer._save_checkpoint

    def save_limited(*args: Any) -> None:
        with limit_files(num_bytes):
            save(*args)

    monkeypatch.setattr(Trainer, "_save_checkpoint", save_limited)
    with pytest.raises(
        ArtifactError, match=r"checkpoint-1: cannot be written \(.+\)\. Free some space or choose another"
    ) as caught:
        train(job, tokenize_training_rows(job), lambda metrics, checkpoint_dir: pytest.fail("reported"), None)
    assert "\n" not in str(caught.value)


def test_a_merged_model_that_cannot_be_written_is_not_there(
    job: TrainJob, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = Description(job.config, {"rows": 4}, {"format": "0123"}, None)
    (tmp_path / MERGED_DIR_NAME).mkdir()  # of an earlier training
    last = trained / f"checkpoint_{NUM_ROWS}"
    weights = (Path(job.model) / "model.safetensors").stat().st_size
    with limit_files(weights - 1), pytest.raises(ArtifactError, match=r"merged: cannot be written .*--no-finetune\.merge"):
        publish_adapter(last, job.model, described, None, tmp_path)
    assert not (tmp_path / MERGED_DIR_NAME).exists()
    publish_adapter(last, job.model, described, None, tmp_path)
    with safe_open(tmp_path / MERGED_DIR_NAME / "model.safetensors", framework="pt") as merged:
        assert list(merged.keys())


def test_what_a_disk_refuses_ends_a_training_with_one_sentence(tmp_path: Path) -> None:
    refused = ArtifactError("/tmp/a: cannot be written (No space left on device). Free some space.")
    of_worker = WorkerGroupError("a long report", {1: UserExceptionWithTraceback(refused, "Traceback\n...")})
    assert describe_failure(of_worker, tmp_path) is refused
    of_ray = describe_failure(ControllerError(OSError(28, "No space left on device")), tmp_path)
    assert isinstance(of_ray, ArtifactError)
    assert str(of_ray).startswith(f"{tmp_path}: cannot be written (No space left on device). Free some space")
    died = describe_failure(WorkerGroupError("a worker died", {0: RuntimeError("died")}), tmp_path)
    assert isinstance(died, TrainError)
    assert "restarts at most 2 times" in str(died)
    full = {torch.OutOfMemoryError: GpuMemoryError, OutOfMemoryError: TrainError}  # of a GPU, and of a node
    for kind, expected in full.items():
        failures: dict[int, Exception] = {0: UserExceptionWithTraceback(kind("out of memory"), "Traceback\n...")}
        assert type(describe_failure(WorkerGroupError("a worker died", failures), tmp_path)) is expected
    assert isinstance(describe_failure(TrainingFailedError("stopped"), tmp_path), TrainError)
