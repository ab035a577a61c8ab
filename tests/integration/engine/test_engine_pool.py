"""Engines that stay up between the stages of a pipeline: the same process writes for all of them, each time with the policies of
the stage, and when it dies another one takes its place."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from adapters import make_adapter
from collecting import read_problems
from process_environments import list_reporting
from rollout_stages import Stages, find_engines
from waiting import wait_until

from drag_ray.cluster.nodes import free_gpus
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout.engine_pool import keep_engines
from drag_ray.rollout.failures import ENGINE_DIED
from drag_ray.rollout.folder import RUNNING_DIR_NAME

ENGINE = EngineConfig(device="cpu", dtype="float32", max_model_len=1024, max_num_seqs=16, enforce_eager=True)


@pytest.mark.slow  # test_whole_loop has an engine for two stages, test_engine_adapters one whose adapters change
def test_stages_share_an_engine_that_writes_with_their_own_adapters_until_it_dies(local_ray: None, tmp_path: Path) -> None:
    first, second = (make_adapter(tmp_path / name, seed) for seed, name in enumerate(("first", "second")))
    with keep_engines():
        stages = Stages(tmp_path, ENGINE)
        replies = stages.roll_out("one", first)
        [engine] = find_engines()
        others = stages.roll_out("two", second, logprobs=False)
        assert find_engines() == [engine]
        assert all(reply != other for reply, other in zip(replies, others, strict=True))
        assert free_gpus() == 1  # there is none to share
        names, reporting = list_reporting(psutil.Process())
        assert {"VLLM::EngineCore", "raylet"} <= names
        assert not reporting
        with ThreadPoolExecutor(1) as beside:
            third = beside.submit(stages.roll_out, "three", first)
            wait_until(lambda: any((tmp_path / "three").glob(f"{RUNNING_DIR_NAME}/*")))
            engine.kill()
            assert third.result() == replies
        assert engine not in find_engines()
        reasons = {problem["reason"] for problem in read_problems(tmp_path / "three")}
        assert reasons == {f"{ENGINE_DIED}; finished in a later try"}
    wait_until(lambda: not find_engines())  # the Ray that they were in goes on, and ends them in its time
