"""Engines that rest while a GPU has other work: they give back its memory, Ray finds room beside them, and then they go on."""

import sys
from pathlib import Path

import pytest
import ray
import ray.cloudpickle
import torch
from adapters import make_adapter
from rollout_stages import Stages, find_engines

from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.cluster.nodes import free_gpus
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout.engine_pool import keep_engines

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]

# The tasks' processes cannot import this file.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

# In bfloat16 a reply depends on what else is in its batch.
ENGINE = EngineConfig(
    device="gpu", dtype="float32", max_model_len=1024, max_num_seqs=16, enforce_eager=True, gpu_memory_utilization=0.8
)


def measure_free_share() -> float:
    """The part of the GPU's memory that a process beside the engines could take."""
    free, total = torch.cuda.mem_get_info()
    return free / total


def test_engines_free_their_gpu_and_take_it_again(tmp_path: Path) -> None:
    first, second = (make_adapter(tmp_path / name, seed) for seed, name in enumerate(("first", "second")))
    with connect(ClusterConfig()), keep_engines():
        stages = Stages(tmp_path, ENGINE)
        base, replies = stages.roll_out("one"), stages.roll_out("two", first)
        engines = find_engines()
        share = free_gpus()
        assert 0 < share < 1
        found = ray.get(ray.remote(num_gpus=share)(measure_free_share).remote(), timeout=60)
        assert found > 0.9
        assert stages.roll_out("three") == base
        assert stages.roll_out("four", first) == replies
        assert stages.roll_out("five", second) not in (base, replies)
        assert find_engines() == engines
        assert ray.get(ray.remote(num_gpus=share)(measure_free_share).remote(), timeout=60) < 0.3
