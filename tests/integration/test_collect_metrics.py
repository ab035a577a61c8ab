"""A collection on a local Ray with scripted replies: what its actors measure is what Prometheus is given."""

import re
import sys
import time
import urllib.request
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import ray
import ray.cloudpickle
from collecting import build_options
from engine_process import run_in_process
from factories import build_question

import drag_ray
from drag_ray.agent.config import AgentConfig
from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.cluster.metrics import open_stage_recorder
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import ImageSource, Request
from drag_ray.engine.scripted import ScriptedEngine
from drag_ray.errors import RolloutError
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.counts import COUNTS, WORKER_COUNTS
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
    with (
        connect(ClusterConfig(num_cpus=2)),
        StageFolder(run_dir / "collect", artifacts.Identity("collect", {}, {})) as folder,
    ):
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
    """What is exported when the last report of all processes has arrived, which report every few seconds, or at the end."""
    deadline = time.monotonic() + timeout_s
    told = read_metrics()
    while not is_complete(told) and time.monotonic() < deadline:
        time.sleep(1)
        told = read_metrics()
    return told


def is_complete(told: dict[str, float]) -> bool:
    return "ray_drag_ray_train_loss" in told and told.get("ray_drag_ray_rollout_seconds_count", 0) == 2 * NUM_QUESTIONS


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], dict[str, float]]:
    """The counts of a collection, and the metrics of it."""
    counts, told = run_in_process(collect, tmp_path_factory.mktemp("run") / "watched")
    assert is_complete(told), f"not exported: {told}"
    return counts, told


@pytest.fixture(scope="module")
def counts(exported: tuple[dict[str, int], dict[str, float]]) -> dict[str, int]:
    return exported[0]


@pytest.fixture(scope="module")
def metrics(exported: tuple[dict[str, int], dict[str, float]]) -> dict[str, float]:
    return exported[1]


def test_counters_say_what_is_on_disk(counts: dict[str, int], metrics: dict[str, float]) -> None:
    assert counts["finished"] == 2 * (NUM_QUESTIONS - 1)
    exported = {name: metrics.get(f"ray_drag_ray_{name}_total", 0) for name in counts}
    for name in ("finished", "found", "turns", "invalid_replies", "completion_tokens", "searches", "zero_hit_searches"):
        assert exported[name] == counts[name] > 0, name
    assert metrics["ray_drag_ray_failed_total"] == 2


def test_no_rollout_is_running_or_waiting_at_the_end(metrics: dict[str, float]) -> None:
    assert metrics["ray_drag_ray_rollouts_running"] == 0
    assert metrics["ray_drag_ray_rollouts_waiting"] == 0


def test_how_far_a_stage_is_is_exported_by_its_driver(metrics: dict[str, float]) -> None:
    told = {name: metrics.get(f"ray_drag_ray_{name}") for name in ("stage_running", "stage_done", "stage_planned", "train_loss")}
    assert told == {"stage_running": 1, "stage_done": 3, "stage_planned": 4, "train_loss": 0.5}


def test_the_dashboard_finds_its_series(counts: dict[str, int], metrics: dict[str, float]) -> None:
    dashboard = (Path(drag_ray.__file__).parent / "rollout" / "dashboard.json").read_text()
    # A counter is exported from its first step on.
    silent = {f"ray_drag_ray_{name}_total" for name in COUNTS | WORKER_COUNTS if not counts.get(name, 0)}
    assert set(re.findall(r"ray_drag_ray_\w+", dashboard)) - silent <= set(metrics)


def test_durations_are_those_of_the_rollouts(metrics: dict[str, float]) -> None:
    mean_s = metrics["ray_drag_ray_rollout_seconds_sum"] / metrics["ray_drag_ray_rollout_seconds_count"]
    assert 0.05 < mean_s < 20
