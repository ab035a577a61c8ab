"""A collection on a local Ray with scripted replies: what its actors measure is what Prometheus is given."""

import re
import sys
import time
import urllib.request
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import ray
import ray.cloudpickle
from collecting import build_options
from engine_process import run_in_process
from factories import build_question
from scripted_engine import ScriptedEngine

from drag_ray.agent.config import AgentConfig
from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.cluster.metrics import open_stage_recorder
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import ImageSource, Request
from drag_ray.errors import RolloutError
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import run_plan
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.types import Evidence

NUM_QUESTIONS = 6
_SAMPLE = re.compile(r"^(?P<name>\w+)\{(?P<tags>.*)\} (?P<value>\S+)$")


def reply(request: Request) -> str:
    """Question 0 fails; the others search for what is there, then for what is not, and then write no action."""
    if "question 0" in request.messages[1]["content"]:
        raise RolloutError("poison")
    turn = sum(message["role"] == "assistant" for message in request.messages)
    return ("<search>rotor</search>", "<search>zeppelin</search>", "hm")[turn]


def build_engine(config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]) -> ScriptedEngine:
    return ScriptedEngine(reply, delay_s=0.05)


# The actors' processes cannot import this file.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


def collect(run_dir: Path, results: Connection) -> None:
    """Run the collection and send its counts, and what is exported of it. In a process of its own: Ray exports nothing of one
    that was connected to another Ray before, as that of the tests may have been."""
    evidence = (Evidence("a.pdf", 1),)
    questions = [build_question(id=f"q{n}", question=f"question {n}?", evidence=evidence) for n in range(NUM_QUESTIONS)]
    with connect(ClusterConfig(num_cpus=2)), StageFolder(run_dir / "collect", artifacts.Identity("collect", {}, {})) as folder:
        options = build_options(
            run_dir.parent,
            ["rotor", "spar"],
            run_dir=folder.path,
            agent=AgentConfig(query_mode="rewrite", max_iterations=3),
            concurrent_rollouts=2,
            build_engine=build_engine,
        )
        plan = build_plan(questions, ("default",), 2, run_seed=0)
        settings = RolloutConfig(chunk_rollouts=4, max_failure_rate=0.5, num_engines=2)
        recorder = open_stage_recorder(folder.path)
        recorder.set_running(True)
        recorder.set_progress("parts", 3, 4)
        recorder.set_point({"loss": 0.5, "epoch": 1.0})
        counts = run_plan(plan, options, settings, "collecting")
        results.send((counts, wait_for_metrics(timeout_s=90)))


def read_metrics() -> dict[str, float]:
    """The sums over all processes of this run's samples, by name; what is left of a series is its other tags."""
    [node] = ray.nodes()
    text = urllib.request.urlopen(f"http://127.0.0.1:{node['MetricsExportPort']}/metrics", timeout=60).read().decode()
    sums: dict[str, float] = {}
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample and 'run="watched"' in sample["tags"] and 'stage="collect"' in sample["tags"]:
            sums[sample["name"]] = sums.get(sample["name"], 0.0) + float(sample["value"])
    return sums


def wait_for_metrics(timeout_s: float) -> dict[str, float]:
    """The exported metrics once the last report of all processes has arrived, which report every few seconds, or at the end."""
    deadline = time.monotonic() + timeout_s
    told = read_metrics()
    while not is_complete(told) and time.monotonic() < deadline:
        time.sleep(1)
        told = read_metrics()
    return told


def is_complete(told: dict[str, float]) -> bool:
    return "ray_drag_ray_train_loss" in told and told.get("ray_drag_ray_rollout_seconds_count", 0) == 2 * NUM_QUESTIONS


def test_what_the_actors_and_the_driver_measure_is_exported(tmp_path: Path) -> None:
    counts, metrics = run_in_process(collect, tmp_path / "watched")
    assert is_complete(metrics), f"not exported: {metrics}"
    told = {name.removeprefix("ray_drag_ray_"): value for name, value in metrics.items()}
    assert counts["finished"] == 2 * (NUM_QUESTIONS - 1)
    for name in ("finished", "found", "turns", "invalid_replies", "completion_tokens", "searches", "zero_hit_searches"):
        assert told[f"{name}_total"] == counts[name] > 0, name
    ends = {"failed_total": 2, "rollouts_running": 0, "rollouts_waiting": 0}
    assert told.items() >= (ends | {"stage_running": 1, "stage_done": 3, "stage_planned": 4, "train_loss": 0.5}).items()
    assert 0.05 < told["rollout_seconds_sum"] / told["rollout_seconds_count"] < 20
