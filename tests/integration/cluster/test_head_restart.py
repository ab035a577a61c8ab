"""A head whose processes are gone, and which comes back with what it has kept in a store that outlives them."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import pytest
import ray
from ports import find_port
from waiting import wait_until

from drag_ray.cluster.connection import ensure_token
from drag_ray.rollout import journal

ROOT = Path(__file__).parents[3]
RAY = Path(sys.executable).with_name("ray")
NUM_ROLLOUTS = 24


class Node:
    """A node of a cluster on this machine, whose processes can be killed and started again.

    Args:
        options: of `ray start`.
        environment: variables that its processes have beside those of this one.
    """

    def __init__(self, *options: str, environment: dict[str, str]) -> None:
        # Another Ray of this machine may have the agents' usual port.
        self._command = [str(RAY), "start", "--block", "--dashboard-agent-listen-port=0", *options]
        self._environment = {**os.environ, "RAY_AUTH_MODE": "token", **environment}
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._environment, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for member in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
        self._process.kill()
        self._process.wait()


@pytest.fixture
def own_dir() -> Iterator[Path]:
    """For Ray's sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class Cluster(NamedTuple):
    """A head without CPUs that keeps its records in a store which outlives it, and a worker."""

    head: Node
    address: str
    worker_dir: Path
    head_dir: Path

    def lose_head(self) -> None:
        """Kill all processes of the head, and start it again after a while."""
        self.head.kill()
        time.sleep(5)
        # A machine that starts has no such file; here Ray takes the worker's processes for another head's.
        (self.head_dir / "ray_current_cluster").unlink()
        self.head.start()
        wait_for(int(self.address.rpartition(":")[2]))


@pytest.fixture
def cluster(tmp_path: Path, own_dir: Path) -> Iterator[Cluster]:
    ensure_token(may_create=True)
    kept = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(tmp_path / "gcs")}
    (tmp_path / "gcs").mkdir()
    port = find_port()
    head_options = [f"--port={port}", f"--ray-client-server-port={find_port()}", f"--temp-dir={own_dir / 'head'}"]
    head = Node("--head", "--num-cpus=0", "--include-dashboard=false", *head_options, environment=kept)
    try:
        wait_for(port)
        address, worker_dir = f"127.0.0.1:{port}", own_dir / "worker"
        worker = Node(f"--address={address}", "--num-cpus=2", f"--temp-dir={worker_dir}", environment={})
        try:
            yield Cluster(head, address, worker_dir, own_dir / "head")
        finally:
            worker.kill()
    finally:
        head.kill()


@pytest.mark.slow
def test_a_collection_outlives_its_head_that_comes_back_with_its_storage(tmp_path: Path, cluster: Cluster) -> None:
    command = [sys.executable, __file__, str(tmp_path), cluster.address, str(cluster.worker_dir)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RAY_AUTH_MODE": "token"}
    driver = subprocess.Popen(command, env=environment)
    try:
        wait_until(lambda: driver.poll() is not None or len(list(tmp_path.glob("run/trajectories/*.parquet"))) >= 3, 180)
        num_kept = len(journal.read_finished_ids(tmp_path / "run"))
        cluster.lose_head()
        assert driver.poll() is None, "it has ended before the head was there again"
        assert driver.wait(timeout=180) == 0
    finally:
        driver.kill()
    assert 0 < num_kept < NUM_ROLLOUTS
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert (counts["finished"], counts["set_aside"], counts["unfinished"]) == (NUM_ROLLOUTS, 0, 0)
    ids = Counter(row["id"] for row in journal.read_trajectories(tmp_path / "run").to_pylist())
    assert len(ids) == NUM_ROLLOUTS
    assert set(ids.values()) == {1}


@pytest.mark.slow
def test_an_endpoint_answers_again_when_its_head_is_back_with_its_storage(
    tmp_path: Path, cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    from ports import find_port

    port = find_port()
    options = {"run-dir": tmp_path, "cluster.address": cluster.address, "serve.port": port, "serve.device": "cpu"}
    options |= {"engine.max-model-len": 512, "engine.max-num-seqs": 4}
    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    driver = subprocess.Popen([sys.executable, "jobs/serve.py", *given], cwd=ROOT, env=dict(os.environ))
    body = {"model": "base", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 2}

    def ask() -> int:
        """The status of an answer; 0 where nobody listens, or the connection is lost."""
        try:
            return httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=60).status_code
        except httpx.TransportError:
            return 0

    try:
        wait_until(lambda: driver.poll() is not None or ask() == 200, 400)
        assert driver.poll() is None
        cluster.lose_head()
        back_at, statuses = time.monotonic(), [ask()]
        while statuses[-1] != 200:
            assert time.monotonic() < back_at + 300, statuses
            time.sleep(0.5)
            statuses.append(ask())
        record_property("recovered_s", time.monotonic() - back_at)
        assert set(statuses[:-1]) <= {0, 503}
        assert [ask() for _ in range(5)] == [200] * 5
    finally:
        driver.kill()


def wait_for(port: int) -> None:
    """Until something listens there."""

    def listens() -> bool:
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", port)) == 0

    wait_until(listens)


def collect(folder: Path, address: str, worker_dir: str) -> None:
    """A collection whose driver is on the worker's machine, as Ray sees it: its folder says so."""
    sys.path.insert(0, str(ROOT / "tests" / "integration" / "collect"))
    import test_collect_faults as faults

    ray.init(address=address, _temp_dir=worker_dir)
    counts = faults.collect(faults.build_options(folder, delay_s=3))
    (folder / "counts.json").write_text(json.dumps(counts))
    ray.shutdown()


if __name__ == "__main__":
    collect(Path(sys.argv[1]), *sys.argv[2:])
