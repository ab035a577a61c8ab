"""A training that is given up gives back what it had, to the job that goes on."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from waiting import wait_until

from drag_ray.cluster.nodes import find_seeing
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.training_process import build_trainer, fit
from drag_ray.finetune.workers import Workers


def count_free() -> float:
    return ray.available_resources().get("CPU", 0)


def test_a_training_that_is_interrupted_gives_its_cpu_back(local_ray: None, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        (tmp_path / "begun").touch()
        time.sleep(600)

    def interrupt() -> None:
        wait_until(lambda: (tmp_path / "begun").exists())
        os.kill(os.getpid(), signal.SIGINT)

    wait_until(lambda: count_free() == 2)  # those of tests before
    workers = Workers(num_workers=1, num_cpus=1, use_gpu=False)
    seeing = find_seeing(tmp_path, use_gpu=False)
    trainer = build_trainer(train, {}, FinetuneConfig(), workers, {"CPU": 1}, tmp_path / "train", seeing)
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        fit(trainer, 0, tmp_path)
    wait_until(lambda: count_free() == 2, 20)
