"""The driver of a simulated cluster: the collection itself, and what it notes while it goes on (see `simulate_cluster.py`).

Everything is noted in files of the folder as it happens (`simulation_notes.py`), so that it is there when something fails.
"""

import argparse
import asyncio
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from scripted_collection import PatientEngine, build_options, count_rollouts, plan_rollouts, write_index
from simulation_notes import BEGUN_NAME, COLLECTED_NAME, ENGINES_DIR_NAME, LET_NAME, LOOKS_NAME, Notes
from watch import Watch

from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.engine.generate import Generation, Request
from drag_ray.messages import show_messages
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.runner import run_plan

_POLL_S = 0.2


class NotingEngine(PatientEngine):
    """Notes when it was made, and when each reply began and ended. It waits until it is let."""

    def __init__(self, folder: Path, delay_s: float) -> None:
        own = folder / ENGINES_DIR_NAME / f"{os.getpid()}"
        super().__init__(own.with_suffix(".peak"), delay_s)
        self._let_path = folder / LET_NAME
        self._replies = own.with_suffix(".replies").open("w", buffering=1)
        own.with_suffix(".made").write_text(str(time.time()))

    async def __call__(self, request: Request) -> Generation:
        while not self._let_path.exists():
            await asyncio.sleep(_POLL_S)
        began_at = time.time()
        reply = await super().__call__(request)
        self._replies.write(f"{began_at:.3f} {time.time():.3f} {reply.text.startswith('<answer>'):d}\n")
        return reply


class Looks(Watch):
    """State of the cluster as the driver sees it: nodes that count as alive, the object store, the time of a call to an actor."""

    interval_s = 0.2
    _STORE = "object_store_memory"

    def __init__(self, path: Path) -> None:
        self._path = path
        # Where the driver is: one on a node that is lost would not answer.
        here: Any = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor: Any = ray.remote(num_cpus=0, scheduling_strategy=here)(_Echo)
        self._actor = actor.remote()
        ray.get(self._actor.echo.remote())

    def look(self) -> None:
        """A line of JSON."""
        began = time.monotonic()
        ray.get(self._actor.echo.remote())
        call_s = time.monotonic() - began
        num_alive = sum(node["Alive"] for node in ray.nodes())
        used_bytes = ray.cluster_resources().get(self._STORE, 0) - ray.available_resources().get(self._STORE, 0)
        line = {"at": time.time(), "call_s": call_s, "nodes": num_alive, "store_bytes": used_bytes}
        with self._path.open("a") as looks:
            looks.write(json.dumps(line) + "\n")


class _Echo:
    def echo(self) -> None:
        """Answer."""


def collect(folder: Path, arguments: argparse.Namespace) -> None:
    """The collection; what came of it goes to `COLLECTED_NAME`."""
    plan = plan_rollouts(arguments.rollouts)
    delay_s = arguments.delay_s
    options = build_options(folder, arguments.concurrent, lambda config, images, adapters: NotingEngine(folder, delay_s))
    num_engines = arguments.actors
    if arguments.grow:
        num_engines = 1
        Notes(folder).let_write()
    settings = RolloutConfig(num_engines=num_engines, max_engines=arguments.actors, chunk_rollouts=arguments.chunk_rollouts)
    _write(folder / BEGUN_NAME, {"at": time.time()})
    run_plan(plan, replace(options, max_tries=settings.max_tries), settings, "collecting")
    ended_at = time.time()
    _write(folder / COLLECTED_NAME, {"at": ended_at} | count_rollouts(folder / "run", {task.id for task in plan}))


def _write(path: Path, content: dict[str, Any]) -> None:
    """Whole at once: another process waits for it."""
    scratch = path.with_suffix(".part")
    scratch.write_text(json.dumps(content))
    scratch.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name in ("actors", "rollouts", "concurrent", "chunk-rollouts"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--delay-s", type=float, required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--grow", action="store_true", help="from one engine to --actors")
    arguments = parser.parse_args()
    show_messages()
    folder = arguments.folder
    (folder / ENGINES_DIR_NAME).mkdir()
    write_index(folder)
    with connect(ClusterConfig(address=arguments.address)), Looks(folder / LOOKS_NAME):
        collect(folder, arguments)
        threading.Event().wait()  # it goes on looking until it is ended


if __name__ == "__main__":
    main()
