"""Every stage, and the endpoint, as jobs on a cluster of two nodes, which find what went before by URI alone."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import find_port
from ray_nodes import RAY, Ports, answers, run_command, start_nodes, submit_job
from waiting import wait_until

from drag_ray.serve.client import EndpointClient
from drag_ray.stage_runs.damage import verify_stage

pytestmark = pytest.mark.slow

PORTS = Ports(gcs=6392, dashboard=8292, client=9892)
CONFIG = """
[corpus]
documents = "commands"
questions = "commands"
limit_pages = 100
[agent]
question_weight = 3
max_tokens = 16
thinking = false
[engine]
dtype = "bfloat16"
max_model_len = 2048
enforce_eager = true
[collect]
limit = 6
samples_per_question = 2
proposals = ["question_keywords", "rm3"]
[format]
validation_fraction = 0.3
[finetune]
epochs = 1
target_modules = ["q_proj", "v_proj"]
[evaluate]
limit = 4
baselines = ["question"]
question_weights = []
"""
STAGES = ["index", "collect", "process", "format", "finetune", "evaluate"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of someone who has the token of a cluster of two nodes."""
    with start_nodes(PORTS, tmp_path_factory.mktemp("token") / "auth_token", num_nodes=2) as environment:
        yield environment


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    (tmp_path / "run.toml").write_text(CONFIG)
    return ["--config", str(tmp_path / "run.toml"), "--storage.uri", f"file://{tmp_path}/store"]


@pytest.mark.timeout(2400)
def test_each_stage_runs_as_a_job_that_has_an_empty_run_folder_and_the_uri_alone(
    cluster: dict[str, str], options: list[str], tmp_path: Path
) -> None:
    for number, stage in enumerate(STAGES):
        run_dir = tmp_path / f"run_of_{stage}"
        done = submit_job(PORTS, cluster, f"jobs/{stage}.py", *options, "--run-dir", str(run_dir))
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
        assert f"{stage}: done in" in done.stdout
        assert f"{stage}: pushed to {options[-1]}" in done.stdout
        pulled = set(re.findall(r"(\w+): pulled from", done.stdout))
        assert pulled <= set(STAGES[:number])
        assert bool(pulled) == (number > 0)
        verify_stage(run_dir / stage)
    assert (tmp_path / "run_of_evaluate" / "evaluate" / "report.html").is_file()
    serve_and_ask(cluster, *options, "--run-dir", str(tmp_path / "run_of_serve"))


def serve_and_ask(cluster: dict[str, str], *options: str) -> None:
    """The endpoint as a job: it searches the run's index with the run's adapter, and ends when its job is stopped."""
    port = find_port()
    serving = submit_job(PORTS, cluster, "jobs/serve.py", *options, f"--serve.port={port}", "--serve.device=cpu", no_wait=True)
    job = read_job(serving)
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: answers(f"{url}/health"), 600)
    found = EndpointClient(url).search(model="tuned", question="How are arrays sorted?")
    assert found["model"] == "tuned"
    assert found["pages"]
    log = run_job_command(cluster, "logs", job).stdout
    assert {"index", "finetune"} <= set(re.findall(r"(\w+): pulled from", log))
    run_job_command(cluster, "stop", job)
    assert "was stopped" in run_job_command(cluster, "status", job).stdout
    wait_until(lambda: not answers(f"{url}/health"), 60)


def read_job(submitted: subprocess.CompletedProcess[str]) -> str:
    found = re.search(r"raysubmit_\w+", submitted.stdout)
    assert found, submitted.stdout + submitted.stderr
    return found[0]


def run_job_command(cluster: dict[str, str], name: str, job: str) -> subprocess.CompletedProcess[str]:
    return run_command(cluster, str(RAY), "job", name, "--address", PORTS.job_server, job)


def test_a_job_that_was_stopped_goes_on_and_the_next_finds_its_work_in_the_store(
    cluster: dict[str, str], options: list[str], tmp_path: Path
) -> None:
    """A job is stopped as the dashboard stops it; the next one goes on."""
    options = [*options, "--run-dir", str(tmp_path / "run")]
    assert submit_job(PORTS, cluster, "jobs/index.py", *options).returncode == 0
    more = ["--collect.samples-per-question", "12", "--rollout.flush-s", "0"]
    job = read_job(submit_job(PORTS, cluster, "jobs/collect.py", *options, *more, no_wait=True))
    journal = tmp_path / "run" / "collect" / "trajectories"
    wait_until(lambda: list(journal.glob("*.parquet")), 600)
    stopped = run_job_command(cluster, "stop", job)
    assert "stopped" in stopped.stdout + stopped.stderr
    assert not (tmp_path / "run" / "collect" / "manifest.json").exists()
    done = submit_job(PORTS, cluster, "jobs/collect.py", *options, *more)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert "collect: going on" in done.stdout
    assert re.search(r"[1-9]\d* of \d+ rollouts are finished already", done.stdout)
