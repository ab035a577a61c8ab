"""Chunks are spread over engines: equally full to the end, and over engines that come while the run goes on."""

import asyncio
import dataclasses
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import collecting
import pytest
import ray
import ray.cloudpickle
from factories import build_question
from ray.cluster_utils import Cluster
from scripted_engine import ScriptedEngine

from drag_ray.cluster.connection import ClusterConfig, connect, ensure_token, require_token
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Generation, ImageSource, Request
from drag_ray.rollout import journal
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.folder import TRAJECTORIES_DIR_NAME
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import run_plan
from drag_ray.storage.file_access import create_mark
from drag_ray.types import Evidence

NUM_SLOTS = 8
Spans = list[list[tuple[float, float]]]
"""For each engine when its replies began and ended."""

# The actors' processes cannot import this file.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


class SlowEngine:
    """Replies when `num_awaited` engines have started; a reply takes from 20 ms to 2 s. Notes when each began and ended.

    The first to start takes `first_slower` times as long.
    """

    def __init__(self, folder: Path, num_awaited: int, first_slower: float) -> None:
        self._folder, self._num_awaited = folder, num_awaited
        self._slowdown = first_slower if create_mark(folder / "first") else 1.0
        self._log = (folder / f"spans-{os.getpid()}.jsonl").open("w", buffering=1)

    async def __call__(self, request: Request) -> Generation:
        while len(list(self._folder.glob("spans-*"))) < self._num_awaited:
            await asyncio.sleep(0.05)
        began = time.time()
        await asyncio.sleep(self._slowdown * min(2.0, 0.02 + random.Random(request.seed).lognormvariate(-1.6, 0.8)))
        self._log.write(json.dumps([began, time.time()]) + "\n")
        return Generation("<search>rotor</search>", (), (1,), "stop")


def build_options(folder: Path, num_awaited: int, first_slower: float = 1.0) -> WorkerOptions:
    def build_engine(config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]) -> SlowEngine:
        return SlowEngine(folder, num_awaited, first_slower)

    return collecting.build_options(folder, ["rotor"], concurrent_rollouts=NUM_SLOTS, flush_s=1, build_engine=build_engine)


def roll_out(folder: Path, num_questions: int, num_awaited: int, first_slower: float = 1.0, **settings: Any) -> Spans:
    plan = build_plan([build_question(id=f"q{number}") for number in range(num_questions)], ("default",), 4, run_seed=0)
    options = build_options(folder, num_awaited, first_slower)
    counts = run_plan(plan, options, RolloutConfig(concurrent_rollouts=NUM_SLOTS, max_failure_rate=0, **settings), "test")
    assert counts["finished"] == len(plan)
    assert journal.read_finished_ids(folder / "run") == {task.id for task in plan}
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted(folder.glob("spans-*.jsonl"))]


def compute_tail_idle(spans: Spans) -> float:
    """Share of the engines' time, from the first reply to the last, in which an engine had ended and others had not."""
    first, last = min(begin for engine in spans for begin, _ in engine), max(end for engine in spans for _, end in engine)
    return sum(last - max(end for _, end in engine) for engine in spans) / (len(spans) * (last - first))


def compute_fullness(spans: Spans) -> float:
    """Share of the engines' slots that were taken, from the first reply to that moment when the first engine ended."""
    first, until = min(begin for engine in spans for begin, _ in engine), min(max(end for _, end in engine) for engine in spans)
    taken = sum(max(0.0, min(end, until) - begin) for engine in spans for begin, end in engine)
    return taken / (len(spans) * NUM_SLOTS * (until - first))


@pytest.fixture
def joined(ray_address: str) -> Iterator[None]:
    """For a test alone: others of this file have clusters of their own."""
    with connect(ClusterConfig(address=ray_address)):
        yield


def test_an_engine_that_takes_longer_takes_less(joined: None, tmp_path: Path) -> None:
    """Three times as long for a reply."""
    spans = roll_out(tmp_path, num_questions=30, num_awaited=2, first_slower=3.0, num_engines=2, chunk_rollouts=4)
    fewer, more = sorted(len(engine) for engine in spans)
    print(f"tail idle {compute_tail_idle(spans):.3f}, full {compute_fullness(spans):.3f}, {fewer} and {more} rollouts")
    assert more >= 1.5 * fewer


@pytest.mark.slow
def test_engines_stay_full_end_together_and_share_a_small_run(tmp_path: Path) -> None:
    with connect(ClusterConfig(num_cpus=4)):
        spans = roll_out(tmp_path / "long", num_questions=120, num_awaited=4, num_engines=4, chunk_rollouts=4)
        short = roll_out(tmp_path / "short", num_questions=16, num_awaited=4, num_engines=4, chunk_rollouts=4)
    print(f"tail idle {compute_tail_idle(spans):.3f}, full {compute_fullness(spans):.3f}, {[len(engine) for engine in spans]}")
    assert len(spans) == 4
    assert compute_tail_idle(spans) < 0.15
    assert compute_fullness(spans) > 0.6
    assert [len(engine) for engine in short] == [16] * 4  # those that start first, and wait for the others, leave them theirs


def test_a_run_that_goes_on_takes_the_samples_that_it_would_have_taken(joined: None, tmp_path: Path) -> None:
    def reply(request: Request) -> str:
        knows = request.seed % 4 == 0 or "This page answers" in request.messages[-1]["content"]
        return f"<search>{'rotor' if knows else 'nothing'} {request.seed % 7}</search>"

    options = dataclasses.replace(
        build_options(tmp_path, 0),
        build_engine=lambda config, images, adapters: ScriptedEngine(reply, delay_s=0.02),
        enough_successes=2,
        flush_s=0,
    )
    settings = RolloutConfig(concurrent_rollouts=4, num_engines=2)
    questions = [build_question(id=f"q{number}", evidence=(Evidence("a.pdf", 1),)) for number in range(12)]
    plan = build_plan(questions, ("default",), 6, run_seed=1, hinted_samples=1)
    counts = run_plan(plan, options, settings, "test")
    ids = journal.read_finished_ids(options.run_dir)
    assert counts["rollouts"] == 84 == counts["finished"] + counts["hinted"] + counts["skipped"]
    assert len(ids) == counts["finished"] + counts["hinted"]
    assert counts["hinted"]
    assert counts["skipped"] > counts["rollouts"] - counts["finished"] - 12
    for path in journal.list_files(options.run_dir, TRAJECTORIES_DIR_NAME)[::2]:
        path.unlink()
    lost = ids - journal.read_finished_ids(options.run_dir)
    assert len(lost) > 10
    assert run_plan(plan, options, settings, "again") == counts
    assert journal.read_finished_ids(options.run_dir) == ids


def test_the_pool_grows_with_its_cluster(tmp_path: Path) -> None:
    """No reply is given before there are two engines, and CPUs for the second one are only on a node that comes later."""
    ensure_token(may_create=True)
    with require_token():  # of all nodes alike
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        with connect(ClusterConfig(address=str(cluster.address))), ThreadPoolExecutor() as threads:
            settings = {"num_engines": 1, "max_engines": 2, "chunk_rollouts": 4}
            rolling = threads.submit(roll_out, tmp_path, num_questions=12, num_awaited=2, **settings)
            while not list(tmp_path.glob("spans-*")):
                assert not rolling.done(), rolling.result()
                time.sleep(0.1)
            cluster.add_node(num_cpus=1)  # only the main thread can
            spans = rolling.result()
    finally:
        cluster.shutdown()
    assert len(spans) == 2
    assert all(spans)
