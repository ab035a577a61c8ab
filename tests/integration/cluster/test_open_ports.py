"""Sockets of a local run: each that it listens on is asked from outside by someone without the token."""

import os
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import grpc
import psutil
import pytest
from ports import Port, ask_grpc, list_ports
from process_environments import READABLE, REPORTS_OFF, list_reporting

METRICS_PORT = {"DASHBOARD_METRIC_PORT": "0", "AUTOSCALER_METRIC_PORT": "0"}
"""Ray's dashboard and monitor show their figures on one port of a machine, and nowhere if another Ray has it; 0 is a free one."""
NO_TOKEN = {name: value for name, value in os.environ.items() if not name.startswith("RAY_") and name not in REPORTS_OFF}
HOLD_A_LOCAL_RUN = """
import sys
import ray
from drag_ray.cluster.connection import ClusterConfig, connect

with connect(ClusterConfig(num_cpus=1)):
    ray.get(ray.remote(lambda: None).remote())
    print("ready", flush=True)
    sys.stdin.read()
"""
METHODS = {
    "gcs_server": ("NodeInfoGcsService/GetAllNodeInfo", "InternalKVGcsService/InternalKVGet", "JobInfoGcsService/AddJob"),
    "raylet": ("NodeManagerService/RequestWorkerLease", "NodeManagerService/GetNodeStats", "ObjectManagerService/Push"),
    "ray::DashboardAgent": ("ReporterService/GetTraceback", "LogService/ListLogs"),
    "driver": ("CoreWorkerService/PushTask",),
    "worker": ("CoreWorkerService/PushTask",),
}
"""What each of Ray's programs offers by gRPC, with what does most harm among it; a program that is not here fails the test."""
PATHS = {
    "dashboard": ("/api/version", "/api/jobs/", "/nodes?view=summary", "/api/v0/actors", "/api/v0/logs", "/api/cluster_status"),
    "ray::DashboardAgent": ("/api/job_agent/jobs/", "/api/version"),
    "ray::RuntimeEnvAgent": ("/get_or_create_runtime_env",),
}
"""What each of them offers by HTTP."""
FIGURES = ("dashboard", "monitor", "ray::DashboardAgent")
"""Programs that tell anyone on this machine their figures, as Prometheus reads them; nothing else is behind these ports."""


@pytest.fixture(scope="module")
def local_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[psutil.Process]:
    """A driver with a local Ray and a worker, started by a user who has never used Ray."""
    home = tmp_path_factory.mktemp("home")
    command = [sys.executable, "-c", HOLD_A_LOCAL_RUN]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    driver = subprocess.Popen(command, env={**NO_TOKEN, **METRICS_PORT, **READABLE, "HOME": str(home)}, **pipes)
    assert driver.stdin is not None
    assert driver.stdout is not None
    while (line := driver.stdout.readline()) != "ready\n":
        assert line, "the driver ended before Ray was up"
    yield psutil.Process(driver.pid)
    driver.stdin.close()
    driver.wait(timeout=60)


def name_program(process: psutil.Process, driver: psutil.Process) -> str:
    if process == driver:
        return "driver"
    command = " ".join(process.cmdline())
    for script in ("dashboard", "monitor"):
        if f"/{script}.py" in command:
            return script
    name = process.name()
    return name if name in METHODS or name in PATHS or not name.startswith("ray::") else "worker"


def ask_http(number: int, path: str) -> int | None:
    """The status of an answer by HTTP; None from a port that speaks something else."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{number}{path}", timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, HTTPException):
        return None


def shows_figures(number: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{number}/anything", timeout=60) as response:
        return response.read(1000).startswith(b"# HELP ")


def describe_refusal(port: Port, program: str) -> str:
    """The answer of a program's port to someone without the token."""
    if ask_http(port.number, "/") is None:
        codes = {ask_grpc(port.number, f"ray.rpc.{method}") for method in METHODS[program]}
        # A program's port knows its own calls alone; of those that it knows it must answer none.
        # An idle worker may have ended since its port was found.
        assert grpc.StatusCode.UNAUTHENTICATED in codes or not port.process.is_running(), (port, codes)
        assert codes <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED}, (port, codes)
        return "token"
    if program in FIGURES and ask_http(port.number, "/anything") == 200:
        assert shows_figures(port.number), port
        return "figures for anyone"
    statuses = {path: ask_http(port.number, path) for path in PATHS[program]}
    assert set(statuses.values()) == {401}, (port, statuses)
    return "token"


def test_every_port_is_on_the_loopback_address_and_refuses_who_has_no_token(local_run: psutil.Process) -> None:
    ports = {port: name_program(port.process, local_run) for port in list_ports(local_run)}
    answers = {port: describe_refusal(port, program) for port, program in ports.items()}
    print("\n".join(f"{program:22}{port.address}:{port.number:<8}{answers[port]}" for port, program in ports.items()))
    assert {port.address for port in ports} == {"127.0.0.1"}
    assert set(ports.values()) >= {*METHODS, *PATHS, *FIGURES}
    assert sum(answer != "token" for answer in answers.values()) == len(FIGURES)


def test_no_process_of_a_local_run_reports_its_use(local_run: psutil.Process) -> None:
    names, reporting = list_reporting(local_run)
    assert {"gcs_server", "raylet", "ray::DashboardAgent", "ray::IDLE"} <= names
    assert not reporting


def list_socket_files(driver: psutil.Process) -> list[Path]:
    processes = (driver, *driver.children(recursive=True))
    paths = {Path(str(socket.laddr)) for process in processes for socket in process.net_connections("unix") if socket.laddr}
    return [path for path in paths if path.is_absolute() and path.is_socket()]


def test_files_that_are_sockets_are_closed_to_other_users(local_run: psutil.Process) -> None:
    on_disk = list_socket_files(local_run)
    assert {path.name for path in on_disk} >= {"plasma_store", "raylet"}
    for path in on_disk:
        assert path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH) == 0, path


def test_what_ray_logs_and_writes_to_the_disk_is_closed_to_other_users(local_run: psutil.Process) -> None:
    [socket] = [path for path in list_socket_files(local_run) if path.name == "plasma_store"]
    session_dir = socket.parents[1]
    assert (session_dir / "logs").is_dir()
    assert any(stat.S_IMODE(folder.stat().st_mode) == 0o700 for folder in (session_dir, *session_dir.parents))


def test_a_driver_without_the_token_can_run_nothing(local_run: psutil.Process) -> None:
    (gcs,) = {port.number for port in list_ports(local_run) if port.process.name() == "gcs_server"}
    code = "import ray, sys; ray.init(sys.argv[1]); print(ray.get(ray.remote(lambda: 'it ran').remote()))"
    done = subprocess.run(
        [sys.executable, "-c", code, f"127.0.0.1:{gcs}"],
        env={**NO_TOKEN, "RAY_AUTH_MODE": "disabled", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_NUM_REDIS_GET_RETRIES": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "it ran" not in done.stdout
    assert "Unauthenticated" in done.stderr
