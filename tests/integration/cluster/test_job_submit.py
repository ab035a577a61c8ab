"""A cluster started as cluster.yaml starts one: jobs are submitted to it and drivers join it, with its token and not without."""

import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from ports import ask_grpc
from ray_nodes import RAY, Ports, run_command, start_nodes, submit_job

PORTS = Ports(gcs=6391, dashboard=8291, client=9891)
INDEX_JOB = ["jobs/index.py", "--corpus.limit-pages", "60"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of someone who has the cluster's token."""
    with start_nodes(PORTS, tmp_path_factory.mktemp("token") / "auth_token", num_nodes=1) as environment:
        yield environment


@pytest.fixture
def stranger(cluster: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of someone who has a token of another cluster."""
    token = tmp_path / "auth_token"
    token.write_text("6" * 64)
    return {**cluster, "RAY_AUTH_TOKEN_PATH": str(token)}


def test_a_submitted_job_writes_its_run_folder(cluster: dict[str, str], tmp_path: Path) -> None:
    done = submit_job(PORTS, cluster, *INDEX_JOB, "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "index: done in" in done.stdout
    assert (tmp_path / "run" / "index" / "manifest.json").is_file()


def test_a_relative_run_folder_is_refused_in_a_submitted_job(cluster: dict[str, str]) -> None:
    done = submit_job(PORTS, cluster, *INDEX_JOB, "--run-dir", "runs/lost")
    assert done.returncode != 0
    assert "temporary copy of the working directory" in done.stdout


def test_a_driver_joins_with_the_token_alone_and_needs_no_other_variable(cluster: dict[str, str], tmp_path: Path) -> None:
    environment = {name: value for name, value in cluster.items() if name != "RAY_AUTH_MODE"}
    options = ["--cluster.address", f"127.0.0.1:{PORTS.gcs}", "--run-dir", str(tmp_path / "run")]
    done = run_command(environment, sys.executable, *INDEX_JOB, *options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "index: done in" in done.stdout


def test_a_driver_with_another_token_is_told_so(cluster: dict[str, str], stranger: dict[str, str], tmp_path: Path) -> None:
    impatient = {**stranger, "RAY_NUM_REDIS_GET_RETRIES": "2"}
    options = ["--cluster.address", f"127.0.0.1:{PORTS.gcs}", "--run-dir", str(tmp_path / "run")]
    done = run_command(impatient, sys.executable, *INDEX_JOB, *options)
    assert done.returncode == 2
    assert f"no Ray answers there, or not to the token in {stranger['RAY_AUTH_TOKEN_PATH']}" in done.stderr
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        options[1] = f"127.0.0.1:{unused.getsockname()[1]}"
        done = run_command(impatient, sys.executable, *INDEX_JOB, *options)
    assert done.returncode == 2
    assert "nothing listens there" in done.stderr


def test_the_job_server_takes_no_job_without_the_token(cluster: dict[str, str], stranger: dict[str, str]) -> None:
    for environment in (stranger, {**cluster, "RAY_AUTH_MODE": "disabled"}):
        command = [str(RAY), "job", "submit", "--address", PORTS.job_server, "--", "id"]
        done = run_command(environment, *command)
        assert done.returncode != 0
        assert "uid=" not in done.stdout
        assert "uthenticat" in done.stdout + done.stderr
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{PORTS.job_server}/api/jobs/", timeout=30)


def test_ray_client_answers_nobody_without_the_token(cluster: dict[str, str]) -> None:
    ask = "ray.rpc.RayletDriver/ClusterInfo"
    assert ask_grpc(PORTS.client, ask) == ask_grpc(PORTS.client, ask, "6" * 64) == grpc.StatusCode.UNAUTHENTICATED
    assert ask_grpc(PORTS.client, ask, Path(cluster["RAY_AUTH_TOKEN_PATH"]).read_text()) != grpc.StatusCode.UNAUTHENTICATED
