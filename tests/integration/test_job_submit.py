"""A job that is submitted to a running cluster, as on a real one: uploaded working directory, shared run folder."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RAY = Path(sys.executable).parent / "ray"
PORT, DASHBOARD_PORT = 6391, 8291
JOB_SERVER = f"http://127.0.0.1:{DASHBOARD_PORT}"
INDEX_JOB = ["python", "jobs/index.py", "--corpus.manual-packages", "numpy", "--corpus.limit-pages", "60"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    # The submitted job finds `python` on the path of the cluster's processes.
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "PATH": f"{RAY.parent}:{os.environ['PATH']}"}
    options = ["--num-cpus=2", f"--port={PORT}", f"--dashboard-port={DASHBOARD_PORT}", "--dashboard-host=127.0.0.1"]
    head = subprocess.Popen([RAY, "start", "--head", "--block", *options], env=environment, stdout=subprocess.DEVNULL)
    yield environment
    head.terminate()
    head.wait(timeout=60)


def submit(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    arguments = [
        RAY,
        "job",
        "submit",
        "--address",
        JOB_SERVER,
        "--working-dir",
        ".",
        "--runtime-env",
        "runtime_env/job.yaml",
        "--",
    ]
    for _ in range(20):
        done = subprocess.run([*arguments, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        if not any(early in done.stdout + done.stderr for early in ("Failed to connect", "No available agent")):
            break
        time.sleep(1)
    return done


def test_a_submitted_job_writes_its_run_folder(cluster: dict[str, str], tmp_path: Path) -> None:
    done = submit(cluster, *INDEX_JOB, "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "index: done in" in done.stdout
    assert (tmp_path / "run" / "index" / "manifest.json").is_file()


def test_a_relative_run_folder_is_refused_in_a_submitted_job(cluster: dict[str, str]) -> None:
    done = submit(cluster, *INDEX_JOB, "--run-dir", "runs/lost")
    assert done.returncode != 0
    assert "temporary copy of the working directory" in done.stdout
