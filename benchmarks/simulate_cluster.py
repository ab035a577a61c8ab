"""A collection on hundreds of engines that are scripts, on a Ray cluster of several nodes that all are on this machine.

python benchmarks/simulate_cluster.py [--actors 512] [--nodes 8] [--rate 400] [--seconds 70]

Driver, journals, search and Ray are those of every collection. An engine is an actor as in a real one, on a node
that says it has a CPU for it, and waits instead of computing: so long that all of them together begin and end `--rate` rollouts
of two turns a second, as many as this machine's cores must be able to carry. What is measured lies around the engines:

starting     seconds until the engines are there. None writes before all are, or `--start-s` is over: then with those that came.
collecting   rollouts a second, the share of the engines' slots that are taken, how long the driver waits for an actor, what the
             object store holds, memory, and CPU time a rollout of each part with its busiest second, once the engines' first
             chunks are through.
killed       when they have worked for half of `--seconds`, a node's raylet is killed: seconds until the driver sees it, and until
             engines on other nodes are there in the place of its own.
kept         what has become of the rollouts in the end.
silent       another node's raylet stops answering, as behind a network that is cut: seconds until the driver sees it.

Result: `simulation.json`, written anew after each of these, also when something fails or `--limit-s` is over: with what was
measured until then, and `problems`. An actor takes about 150 MB of memory, three seconds of a core to start, and threads by the
cores of the machine: `sysctl kernel.pid_max` has to allow for them.
"""

import argparse
import contextlib
import math
import os
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import psutil
from process_load import watch_processes
from ray.cluster_utils import Cluster
from record import write_result
from simulation_notes import BEGUN_NAME, COLLECTED_NAME, Notes, describe

from drag_ray.cluster.connection import require_token

ROLES = {
    **{"ray::MapWorker": "engines", "raylet/raylet": "raylets", "gcs_server": "controller"},
    **dict.fromkeys(("dashboard", "Dashboard", "runtime_env", "RuntimeEnvAgent"), "dashboard and agents"),
    **{"simulation_driver.py": "driver", "ray::": "other actors"},
}
"""The part of a process, by what stands in its command line; the first that fits."""
_PRINT_EVERY_S = 5.0
_THREADS_PER_ACTOR = 90
"""at most: 52 were seen on two cores, and gRPC and Ray start more on a machine with more of them"""
_ENVIRONMENT = {
    # The nodes have this machine's cores together, not each as many as it says: a process that starts takes its time,
    "RAY_worker_register_timeout_seconds": "300",
    # and Ray would start another one in advance for each CPU.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    # Each would take the memory of all nodes for its own, and end engines when the machine's is nearly used up.
    "RAY_memory_monitor_refresh_ms": "0",
    # A process would start threads for each core of the machine.
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
}
_STORE_BYTES = 200_000_000


def name_part(line: str) -> str:
    """The part of a process, by its command line."""
    return next((part for sign, part in ROLES.items() if sign in line), "")


@contextlib.contextmanager
def start_cluster(arguments: argparse.Namespace, folder: Path) -> Generator[Cluster]:
    """A head without CPUs, and nodes that together have room for the engines even when one of them is lost."""
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    os.environ |= {"RAY_AUTH_TOKEN_PATH": str(token), **_ENVIRONMENT}
    num_cpus = math.ceil(arguments.actors / (arguments.nodes - 1))
    with require_token():
        try:
            head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES, "include_dashboard": True, "dashboard_port": 0}
            cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)
            for number in range(arguments.nodes):
                cluster.add_node(num_cpus=num_cpus, object_store_memory=_STORE_BYTES)
                print(f"node {number + 1} of {arguments.nodes}: {num_cpus} CPUs", flush=True)
            yield cluster
        finally:
            for process in psutil.Process().children(recursive=True):  # asked to end, so many would take a while
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


class Simulation:
    """The driver of a collection on a cluster, what is done to its nodes, and what comes of it.

    Attributes:
        results: what was measured until now.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self.results: dict[str, Any] = {"options": vars(arguments)}
        self._deadline = time.monotonic() + arguments.limit_s
        self._printed_at = 0.0

    def run(self, folder: Path) -> None:
        """Start the cluster and measure everything.

        Raises:
            TimeoutError: the time is over.
            RuntimeError: the driver has ended.
        """
        self._notes = Notes(folder)
        with start_cluster(self._arguments, folder) as cluster:
            self._cluster = cluster
            self._driver, self._started_at = self._start_driver(folder), time.monotonic()
            self._measure_start()
            killed_at = self._measure_collection()
            self._measure_loss(killed_at)
            self._measure_silence()

    def _start_driver(self, folder: Path) -> subprocess.Popen[bytes]:
        names = ("actors", "rollouts", "concurrent", "chunk_rollouts", "delay_s")
        options = [f"--{name.replace('_', '-')}={getattr(self._arguments, name)}" for name in names]
        script = Path(__file__).with_name("simulation_driver.py")
        return subprocess.Popen([sys.executable, script, folder, f"--address={self._cluster.address}", *options])

    def _measure_start(self) -> None:
        arguments = self._arguments
        self._wait(lambda: self._notes.read_json(BEGUN_NAME), "the collection begins")
        begun_at = (self._notes.read_json(BEGUN_NAME) or {})["at"]

        def have_come() -> bool:
            made = self._notes.read_made()
            return len(made) >= arguments.actors or (bool(made) and time.time() - begun_at > arguments.start_s)

        self._wait(have_come, "the engines are there")
        made = [at - begun_at for at in self._notes.read_made()]
        self._add("starting", {"first_after_s": round(made[0], 1), "after_s": describe(made), "memory": measure_memory()})

    def _measure_collection(self) -> float:
        """Let the engines work, then kill a node; returns when that was."""
        self._notes.let_write()
        let_at, arguments = time.time(), self._arguments
        self._wait(lambda: time.time() - let_at > arguments.first_chunk_s, "the first chunks are through")
        steady_at = time.time()
        with watch_processes([os.getpid()], name_part) as load:
            self._wait(lambda: time.time() - let_at > arguments.seconds / 2, "half of the time is over")
            ended_at = time.time()
        memory = measure_memory()
        num_slots = len(self._notes.read_made()) * arguments.concurrent
        figures = self._notes.describe_replies(steady_at, ended_at, num_slots) | self._notes.describe_looks(steady_at, ended_at)
        self._add("collecting", figures | {"cpu": load.summarize(figures["rollouts"]), "memory": memory})
        return self._stop_node("killed", signal.SIGKILL)

    def _measure_loss(self, killed_at: float) -> None:
        self._wait(lambda: self._notes.read_json(COLLECTED_NAME), "the collection has ended")
        collected = self._notes.read_json(COLLECTED_NAME) or {}
        num_lost = self.results["killed"]["engines"]
        replaced = [at - killed_at for at in self._notes.read_made() if at > killed_at][:num_lost]
        figures = {
            "noticed_after_s": self._notes.find_notice(killed_at),
            "engines_replaced_after_s": describe(replaced),
            "collection_ended_after_s": round(collected.pop("at") - killed_at, 1),
        }
        self._add("killed", self.results["killed"] | figures)
        self._add("kept", collected)

    def _measure_silence(self) -> None:
        stopped_at = self._stop_node("silent", signal.SIGSTOP)
        self._wait(lambda: self._notes.find_notice(stopped_at), "the silent node counts as dead")
        self._add("silent", self.results["silent"] | {"noticed_after_s": self._notes.find_notice(stopped_at)})

    def _stop_node(self, name: str, how: signal.Signals) -> float:
        """Send the signal to the raylet that has the most engines; returns when that was."""
        raylets = [psutil.Process(node.all_processes["raylet"][0].process.pid) for node in self._cluster.worker_nodes]
        living = [raylet for raylet in raylets if raylet.status() != psutil.STATUS_ZOMBIE]
        raylet = max(living, key=count_engines)
        self._add(name, {"engines": count_engines(raylet)})
        raylet.send_signal(how)
        return time.time()

    def _wait(self, has_come: Callable[[], object], what: str) -> None:
        """Until this has come, with a line about how far it is now and then."""
        while not has_come():
            if time.monotonic() > self._deadline:
                raise TimeoutError(f"--limit-s {self._arguments.limit_s:g} was over before {what}")
            if self._driver.poll() is not None:
                raise RuntimeError(f"the driver ended ({self._driver.returncode}) before {what}")
            if time.monotonic() - self._printed_at > _PRINT_EVERY_S:
                self._printed_at = time.monotonic()
                memory, seconds = psutil.virtual_memory(), time.monotonic() - self._started_at
                print(
                    f"{seconds:.0f} s, until {what}: {len(self._notes.read_made())} engines have come, "
                    f"{memory.used / 2**30:.1f} of {memory.total / 2**30:.1f} GiB used",
                    flush=True,
                )
            time.sleep(0.5)

    def _add(self, name: str, figures: dict[str, Any]) -> None:
        self.results[name] = figures
        print(name, figures, flush=True)
        write_result(self._arguments.name, self.results)


def count_engines(raylet: psutil.Process) -> int:
    """Engines among the processes of a node."""
    return sum(name_part(" ".join(process.cmdline())) == "engines" for process in raylet.children())


def measure_memory() -> dict[str, dict[str, float]]:
    """Processes, threads and MiB of each part now; what processes share is divided among them."""
    parts = defaultdict[str, dict[str, float]](lambda: {"processes": 0, "threads": 0, "mib": 0})
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            part = parts[name_part(" ".join(process.cmdline())) or "others"]
            mib, threads = process.memory_full_info().pss / 2**20, process.num_threads()
            part["processes"] += 1
            part["threads"] += threads
            part["mib"] += mib
    return {name: part | {"mib": round(part["mib"])} for name, part in sorted(parts.items())}


def check_threads(num_actors: int) -> None:
    """Refuse what the machine has too few threads for: Ray would only say that its processes end one after the other.

    Raises:
        SystemExit: names how many there may be.
    """
    path = Path("/proc/sys/kernel/pid_max")
    most, needed = int(path.read_text()), num_actors * _THREADS_PER_ACTOR
    if needed > most:
        sys.exit(f"{path}: {most} threads are too few for {num_actors} actors. Run `sysctl -w kernel.pid_max={2**22}`.")


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, default=512)
    parser.add_argument("--nodes", type=int, default=8, help="beside the head; at least 3")
    parser.add_argument("--rate", type=float, default=400, help="rollouts a second of all engines")
    parser.add_argument("--seconds", type=float, default=70, help="for which there are rollouts at this rate")
    parser.add_argument("--concurrent", type=int, default=4, help="rollouts that an engine works on at once")
    parser.add_argument("--chunk-rollouts", type=int, default=8, help="as rollout.chunk_rollouts")
    parser.add_argument("--start-s", type=float, default=240, help="for which engines that have not come are waited for")
    parser.add_argument("--limit-s", type=float, default=540, help="after which it ends in any case")
    parser.add_argument("--name", default="simulation", help="of the result")
    arguments = parser.parse_args(argv)
    if arguments.nodes < 3 or not 1 <= arguments.actors <= 5000:
        parser.error("--nodes is 3 or more, --actors 1 to 5000")
    arguments.rollouts = round(arguments.rate * arguments.seconds)
    arguments.delay_s = arguments.actors * arguments.concurrent / arguments.rate / 2
    arguments.first_chunk_s = 2 * arguments.delay_s * max(1, arguments.chunk_rollouts / arguments.concurrent)
    if arguments.first_chunk_s > arguments.seconds / 4:
        parser.error(f"--seconds is {4 * arguments.first_chunk_s:g} or more: an engine has a chunk for a quarter of that")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    check_threads(arguments.actors)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    simulation = Simulation(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="drag-ray-simulation-", ignore_cleanup_errors=True) as folder:
            simulation.run(Path(folder))
    except BaseException:
        simulation.results["problems"] = traceback.format_exc()
        raise
    finally:
        write_result(arguments.name, simulation.results)


if __name__ == "__main__":
    main()
