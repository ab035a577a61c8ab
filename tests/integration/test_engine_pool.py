"""Engines that stay up between the stages of a pipeline: the same process writes for all of them, each time with the policies of
the stage, and when it dies another one takes its place."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from adapters import make_adapter
from process_environments import list_reporting
from rollout_stages import Stages, find_engines
from waiting import wait_until

from drag_ray.cluster.nodes import free_gpus
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout.engine_pool import keep_engines

ENGINE = EngineConfig(device="cpu", dtype="float32", max_model_len=1024, max_num_seqs=16, enforce_eager=True)


@pytest.fixture
def stages(local_ray: None, tmp_path: Path) -> Iterator[Stages]:
    with keep_engines():
        yield Stages(tmp_path, ENGINE)
    wait_until(lambda: not find_engines())  # the Ray that they were in goes on, and ends them in its time


@pytest.fixture
def adapters(tmp_path: Path) -> list[str]:
    return [make_adapter(tmp_path / name, seed) for seed, name in enumerate(("first", "second"))]


def test_stages_share_an_engine_that_writes_with_their_own_adapters(stages: Stages, adapters: list[str]) -> None:
    first, second = adapters
    replies = stages.roll_out("one", first)
    [engine] = find_engines()
    others = stages.roll_out("two", second, logprobs=False)
    assert find_engines() == [engine]
    assert all(reply != other for reply, other in zip(replies, others, strict=True))
    assert free_gpus() == 1  # there is none to share
    names, reporting = list_reporting(psutil.Process())
    assert {"VLLM::EngineCore", "raylet"} <= names
    assert not reporting


@pytest.mark.slow
def test_an_engine_that_dies_is_replaced_and_the_other_writes_the_same(stages: Stages, adapters: list[str]) -> None:
    replies = stages.roll_out("one", adapters[0])
    [engine] = find_engines()
    engine.kill()
    assert stages.roll_out("two", adapters[0]) == replies
    assert engine not in find_engines()
