"""A Ray cluster of one or more nodes on this machine, started as cluster.yaml starts one, and what outsiders ask of it."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from drag_ray.cluster.connection import ensure_token, require_token

ROOT = Path(__file__).parents[3]
RAY = Path(sys.executable).parent / "ray"
_EARLY = ("Failed to connect", "No available agent", "Remote end closed")
"""what the job server's client says while a cluster starts"""


@dataclass(frozen=True)
class Ports:
    """Ports of the head of a cluster; each test file has ports of its own, since several run at a time."""

    gcs: int
    dashboard: int
    client: int

    @property
    def job_server(self) -> str:
        return f"http://127.0.0.1:{self.dashboard}"


@contextmanager
def start_ray(variables: Mapping[str, str], num_cpus: int = 2) -> Iterator[str]:
    """The address of a Ray without a dashboard for drivers of this user; its processes have these variables too."""
    from ray.cluster_utils import Cluster

    ensure_token(may_create=True)
    with require_token(), pytest.MonkeyPatch.context() as environment:
        for name, value in variables.items():
            environment.setenv(name, value)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": num_cpus, "include_dashboard": False})
    yield str(cluster.address)
    cluster.shutdown()


@contextmanager
def start_nodes(
    ports: Ports, token: Path, num_nodes: int, cpus_per_node: int = 2, hidden: Path | None = None
) -> Iterator[dict[str, str]]:
    """Start a head and `num_nodes - 1` workers; the environment of someone who has the cluster's token.

    Args:
        token: file with the cluster's token, which is written where there is none.
        hidden: folder that is another one, and empty, for each worker: it needs root.
    """
    if not token.exists():
        token.write_text("5" * 64)
    outside = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    # The submitted job finds `python` on the path of the cluster's processes.
    environment = {**outside, "PATH": f"{RAY.parent}:{os.environ['PATH']}", "RAY_AUTH_TOKEN_PATH": str(token)}
    environment["RAY_AUTH_MODE"] = "token"
    head = [f"--port={ports.gcs}", f"--dashboard-port={ports.dashboard}", f"--ray-client-server-port={ports.client}"]
    worker = [f"--address=127.0.0.1:{ports.gcs}"]
    without = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs tmpfs {hidden} && exec "$@"', "sh"] if hidden else []
    # Nodes of one host would share the folder into which each unpacks the working directory, and remove it from each other.
    # Ray's sockets lie in it too, whose paths must be short.
    with ExitStack() as stack:
        for options in (["--head", "--dashboard-host=127.0.0.1", *head], *[worker] * (num_nodes - 1)):
            own = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True))
            options = [*options, f"--temp-dir={own}"]
            # Another Ray of this machine may have the agents' usual port: no agent would then take a job.
            command = [RAY, "start", "--block", "--dashboard-agent-listen-port=0", f"--num-cpus={cpus_per_node}", *options]
            command = [*without, *command] if options[0] != "--head" else command
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
            stack.callback(process.wait, timeout=60)
            stack.callback(process.kill)  # its reaper ends the others at once; asked to end, it would wait half a minute
            while not answers(f"{ports.job_server}/api/gcs_healthz"):
                assert process.poll() is None, "ray start has ended"
                time.sleep(0.5)
        while count_nodes(ports, token) < num_nodes:
            time.sleep(0.5)
        yield environment


def answers(url: str) -> bool:
    """Tell whether a request to a URL is answered well."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


def count_nodes(ports: Ports, token: Path) -> int:
    """The number of nodes of the cluster that are alive."""
    request = urllib.request.Request(f"{ports.job_server}/nodes?view=summary")
    request.add_header("Authorization", f"Bearer {token.read_text()}")
    with urllib.request.urlopen(request, timeout=30) as response:
        nodes = json.load(response)["data"]["summary"]
    return sum(node["raylet"].get("state") == "ALIVE" for node in nodes)


def run_command(environment: dict[str, str], *command: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a command in the project's folder and keep what it says."""
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s)


def submit_job(
    ports: Ports, environment: dict[str, str], *command: str, no_wait: bool = False
) -> subprocess.CompletedProcess[str]:
    """`ray job submit` of a Python program, again while the cluster is not quite up."""
    options = ["--address", ports.job_server, "--working-dir", ".", "--runtime-env", "runtime_env/job.yaml"]
    options += ["--no-wait"] if no_wait else []
    deadline = time.monotonic() + 180
    while True:
        done = run_command(environment, str(RAY), "job", "submit", *options, "--", "python", *command, timeout_s=900)
        is_early = any(early in done.stdout + done.stderr for early in _EARLY)
        if not is_early or time.monotonic() > deadline:
            return done
        time.sleep(1)
