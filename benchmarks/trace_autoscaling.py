"""A collection on a cluster that has its head alone, and gets nodes by Ray's autoscaler: when they, and engines, come and go.

python benchmarks/trace_autoscaling.py [--engines 3]

The cluster's own autoscaler, of version 2, starts and ends nodes as raylets on this machine, each with a CPU for one engine. The
collection begins with one engine and may have `--engines` (`rollout.num_engines`, `rollout.max_engines`), which are scripts; all
else is that of every collection. It takes a minute. Result: `autoscaling.json`.
"""

import argparse
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psutil
from record import write_result
from simulation_notes import BEGUN_NAME, COLLECTED_NAME, Notes

HERE = Path(__file__).parent
HEAD_LOG_NAME = "head.log"
_HEAD_ID = "f" * 51 + "00000"
_IDLE_MINUTES = 0.15
_LIMIT_S = 240.0
_HEAD_ENVIRONMENT = {
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": _HEAD_ID,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD_ID,
    "RAY_NODE_TYPE_NAME": "ray.head.default",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
}


def build_cluster_config(max_nodes: int, port: int) -> dict[str, Any]:
    """The configuration of `ray start --autoscaling-config`: a head without CPUs, and nodes with one each, from none."""
    provider = {
        "type": "external",
        "module": "raylet_provider.RayletProvider",
        "gcs_address": f"127.0.0.1:{port}",
        "head_node_id": _HEAD_ID,
        "launch_multiple": True,
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    }
    engines = {"resources": {"CPU": 1, "object_store_memory": 100_000_000}, "node_config": {}, "max_workers": max_nodes}
    return {
        "cluster_name": "trace",
        "provider": provider,
        "max_workers": max_nodes,
        "idle_timeout_minutes": _IDLE_MINUTES,
        "available_node_types": {"ray.head.default": {"resources": {"CPU": 0}, "node_config": {}}, "engines": engines},
        "head_node_type": "ray.head.default",
        "auth": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        **{f"{kind}_commands": [] for kind in ("setup", "head_setup", "worker_setup", "initialization")},
    }


@contextlib.contextmanager
def start_head(folder: Path, max_nodes: int) -> Generator[tuple[str, dict[str, str]]]:
    """A head with an autoscaler; its address, and the environment of someone who has its token. All is ended with the context."""
    port = _find_port()
    config, token = folder / "cluster.json", folder / "token"
    config.write_text(json.dumps(build_cluster_config(max_nodes, port)))
    token.write_text(secrets.token_hex(32))
    outside = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = outside | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as own:  # paths of sockets must be short
        options = [f"--port={port}", f"--ray-client-server-port={_find_port()}", "--dashboard-agent-listen-port=0"]
        options += [f"--autoscaling-config={config}", f"--temp-dir={own}", "--num-cpus=0", "--object-store-memory=100000000"]
        command = [
            str(Path(sys.executable).with_name("ray")),
            "start",
            "--head",
            "--block",
            "--include-dashboard=false",
            *options,
        ]
        with (folder / HEAD_LOG_NAME).open("w") as log:
            head = subprocess.Popen(command, env=environment | _HEAD_ENVIRONMENT, stdout=log, stderr=log)
        try:
            _wait(lambda: _is_open(port), head)
            yield f"127.0.0.1:{port}", environment
        finally:
            _kill_family(head)


def trace(num_engines: int, num_rollouts: int, folder: Path) -> dict[str, Any]:
    """Collect, and wait until the nodes are gone.

    Returns:
        What has become of the rollouts, and `moments`: `{"at_s", "nodes", "engines"}`, seconds since the collection began, nodes
        beside the head and engines that have come, each time that one of them changed; `collected_after_s`.
    """
    notes = Notes(folder)
    with start_head(folder, max_nodes=2 * num_engines) as (address, environment):  # more than there is use for
        options = {"actors": num_engines, "rollouts": num_rollouts, "concurrent": 4, "chunk-rollouts": 4, "delay-s": 1.0}
        command = [sys.executable, str(HERE / "simulation_driver.py"), str(folder), "--grow", f"--address={address}"]
        driver = subprocess.Popen([*command, *(f"--{name}={value}" for name, value in options.items())], env=environment)
        try:
            _wait(lambda: notes.read_json(COLLECTED_NAME), driver)
            _wait(lambda: notes.read_nodes()[-1][1] == 1, driver)
        finally:
            _kill_family(driver)
    begun, collected = notes.read_json(BEGUN_NAME) or {}, notes.read_json(COLLECTED_NAME) or {}
    collected["collected_after_s"] = round(collected.pop("at") - begun["at"], 1)
    return collected | {"moments": _list_moments(notes, begun["at"])}


def _list_moments(notes: Notes, begun_at: float) -> list[dict[str, float]]:
    moments, before = list[dict[str, float]](), None
    made = notes.read_made()
    for at, num_nodes in notes.read_nodes():
        now = {"nodes": num_nodes - 1, "engines": sum(moment <= at for moment in made)}
        if now != before:
            moments.append({"at_s": round(at - begun_at, 1)} | now)
        before = now
    return moments


def _wait(has_come: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not has_come():
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} has ended ({process.returncode})")
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came of {process.args} in {_LIMIT_S:g} s")
        time.sleep(0.2)


def _kill_family(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        for member in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
    process.kill()
    process.wait()


def _find_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def _is_open(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=3, help="at most; the cluster may have twice as many nodes")
    parser.add_argument("--rollouts", type=int, default=240)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="drag-ray-trace-", ignore_cleanup_errors=True) as folder:
        try:
            results = trace(arguments.engines, arguments.rollouts, Path(folder))
        except (RuntimeError, TimeoutError):
            print(Path(folder, HEAD_LOG_NAME).read_text()[-10_000:])
            raise
    print(json.dumps(results, indent=1))
    write_result("autoscaling", results | {"options": vars(arguments) | {"idle_timeout_minutes": _IDLE_MINUTES}})


if __name__ == "__main__":
    main()
