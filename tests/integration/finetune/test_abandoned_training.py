"""A training that ends before it is done gives back what it had, to the job that goes on, and nothing else that this has."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayActorError
from ray.train.v2.api import data_parallel_trainer
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from waiting import wait_until

from drag_ray.cluster.nodes import find_seeing
from drag_ray.errors import TrainError
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.training_process import GroupTrainer, Workers, build_trainer, fit


def count_free() -> float:
    return ray.available_resources().get("CPU", 0)


def build(folder: Path, train: Callable[[dict[str, Any]], None]) -> GroupTrainer:
    workers = Workers(num_workers=1, num_cpus=1, use_gpu=False)
    return build_trainer(train, {}, FinetuneConfig(), workers, {"CPU": 1}, folder / "train", find_seeing(folder, use_gpu=False))


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """The mark of a training that has begun."""
    return tmp_path / "begun"


@pytest.fixture(autouse=True)
def foreign(local_ray: None) -> Iterator[Any]:
    """A placement group of the program itself."""
    wait_until(lambda: count_free() == 2)  # those of tests before
    group = placement_group([{"CPU": 1}])
    assert group.wait(20)
    yield group
    assert placement_group_table(group)["state"] == "CREATED"
    remove_placement_group(group)


def wait_long(begun: Path) -> Callable[[dict[str, Any]], None]:
    def train(config: dict[str, Any]) -> None:
        begun.touch()
        time.sleep(600)

    return train


def test_a_training_that_is_interrupted_gives_its_cpu_back(begun: Path) -> None:
    def interrupt() -> None:
        wait_until(begun.exists)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        fit(build(begun.parent, wait_long(begun)), begun.parent)
    wait_until(lambda: count_free() == 1, 20)


@pytest.mark.parametrize("end", [lambda trainer: trainer.abandon(), lambda trainer: ray.kill(trainer._controller)])
def test_a_training_beside_the_main_thread_does_so_too(begun: Path, end: Callable[[Any], None]) -> None:
    trainer = build(begun.parent, wait_long(begun))
    with ThreadPoolExecutor(1) as beside:
        outcome = beside.submit(fit, trainer, begun.parent)
        wait_until(begun.exists)
        end(trainer)
        with pytest.raises(RayActorError):
            outcome.result(timeout=20)
    wait_until(lambda: count_free() == 1, 20)


def test_a_controller_that_stops_before_its_workers_leaves_nothing(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Undecided:
        def make_decision(self, training_failed_error: Exception) -> None:
            raise RuntimeError("undecided")

    def fail(config: dict[str, Any]) -> None:
        raise ValueError("of the loop")

    monkeypatch.setattr(data_parallel_trainer, "create_failure_policy", lambda settings: Undecided())
    trainer = build(begun.parent, fail)
    with pytest.raises(TrainError, match="undecided"):
        fit(trainer, begun.parent)
    wait_until(lambda: count_free() == 1, 20)
