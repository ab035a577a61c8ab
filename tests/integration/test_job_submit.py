"""A cluster started as cluster.yaml starts one: jobs are submitted to it and drivers join it, with its token and not without."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from ports import ask_grpc

ROOT = Path(__file__).parents[2]
RAY = Path(sys.executable).parent / "ray"
PORT, DASHBOARD_PORT, CLIENT_PORT = 6391, 8291, 9891
JOB_SERVER = f"http://127.0.0.1:{DASHBOARD_PORT}"
INDEX_JOB = ["jobs/index.py", "--corpus.manual-packages", "numpy", "--corpus.limit-pages", "60"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of someone who has the cluster's token."""
    token = tmp_path_factory.mktemp("token") / "auth_token"
    token.write_text("5" * 64)
    outside = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    # The submitted job finds `python` on the path of the cluster's processes.
    environment = {**outside, "PATH": f"{RAY.parent}:{os.environ['PATH']}", "RAY_AUTH_TOKEN_PATH": str(token)}
    environment["RAY_AUTH_MODE"] = "token"
    ports = [f"--port={PORT}", f"--dashboard-port={DASHBOARD_PORT}", f"--ray-client-server-port={CLIENT_PORT}"]
    options = ["--num-cpus=2", *ports, "--dashboard-host=127.0.0.1"]
    head = subprocess.Popen([RAY, "start", "--head", "--block", *options], env=environment, stdout=subprocess.DEVNULL)
    while not is_up():
        assert head.poll() is None, "ray start has ended"
        time.sleep(0.5)
    yield environment
    head.kill()  # its reaper ends the other processes at once; asked to end, it would wait half a minute for the jobs
    head.wait(timeout=60)


def is_up() -> bool:
    try:
        with urllib.request.urlopen(f"{JOB_SERVER}/api/gcs_healthz", timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


@pytest.fixture
def stranger(cluster: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of someone who has a token of another cluster."""
    token = tmp_path / "auth_token"
    token.write_text("6" * 64)
    return {**cluster, "RAY_AUTH_TOKEN_PATH": str(token)}


def submit(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    options = ["--address", JOB_SERVER, "--working-dir", ".", "--runtime-env", "runtime_env/job.yaml"]
    deadline = time.monotonic() + 60
    while True:
        done = run(environment, str(RAY), "job", "submit", *options, "--", "python", *command)
        is_early = any(early in done.stdout + done.stderr for early in ("Failed to connect", "No available agent"))
        if not is_early or time.monotonic() > deadline:
            return done
        time.sleep(1)


def run(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_a_submitted_job_writes_its_run_folder(cluster: dict[str, str], tmp_path: Path) -> None:
    done = submit(cluster, *INDEX_JOB, "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "index: done in" in done.stdout
    assert (tmp_path / "run" / "index" / "manifest.json").is_file()


def test_a_relative_run_folder_is_refused_in_a_submitted_job(cluster: dict[str, str]) -> None:
    done = submit(cluster, *INDEX_JOB, "--run-dir", "runs/lost")
    assert done.returncode != 0
    assert "temporary copy of the working directory" in done.stdout


def test_a_driver_joins_with_the_token_alone_and_needs_no_other_variable(cluster: dict[str, str], tmp_path: Path) -> None:
    environment = {name: value for name, value in cluster.items() if name != "RAY_AUTH_MODE"}
    options = ["--cluster.address", f"127.0.0.1:{PORT}", "--run-dir", str(tmp_path / "run")]
    done = run(environment, sys.executable, *INDEX_JOB, *options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "index: done in" in done.stdout


def test_a_driver_with_another_token_is_told_so(cluster: dict[str, str], stranger: dict[str, str], tmp_path: Path) -> None:
    impatient = {**stranger, "RAY_NUM_REDIS_GET_RETRIES": "2"}
    options = ["--cluster.address", f"127.0.0.1:{PORT}", "--run-dir", str(tmp_path / "run")]
    done = run(impatient, sys.executable, *INDEX_JOB, *options)
    assert done.returncode == 2
    assert f"no Ray answers there, or not to the token in {stranger['RAY_AUTH_TOKEN_PATH']}" in done.stderr
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        options[1] = f"127.0.0.1:{unused.getsockname()[1]}"
        done = run(impatient, sys.executable, *INDEX_JOB, *options)
    assert done.returncode == 2
    assert "nothing listens there" in done.stderr


def test_the_job_server_takes_no_job_without_the_token(cluster: dict[str, str], stranger: dict[str, str]) -> None:
    for environment in (stranger, {**cluster, "RAY_AUTH_MODE": "disabled"}):
        command = [str(RAY), "job", "submit", "--address", JOB_SERVER, "--", "id"]
        done = run(environment, *command)
        assert done.returncode != 0
        assert "uid=" not in done.stdout
        assert "uthenticat" in done.stdout + done.stderr
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{JOB_SERVER}/api/jobs/", timeout=30)


def test_ray_client_answers_nobody_without_the_token(cluster: dict[str, str]) -> None:
    ask = "ray.rpc.RayletDriver/ClusterInfo"
    assert ask_grpc(CLIENT_PORT, ask) == ask_grpc(CLIENT_PORT, ask, "6" * 64) == grpc.StatusCode.UNAUTHENTICATED
    assert ask_grpc(CLIENT_PORT, ask, Path(cluster["RAY_AUTH_TOKEN_PATH"]).read_text()) != grpc.StatusCode.UNAUTHENTICATED
