"""Every stage as a submitted job on a cluster of two nodes, which finds what went before by URI and not in its run folder."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_nodes import RAY, Ports, run_command, start_nodes, submit_job

from drag_ray.damage import verify_stage

pytestmark = pytest.mark.slow

PORTS = Ports(gcs=6392, dashboard=8292, client=9892)
OPTIONS = [
    *("--config", "jobs/configs/demo.toml", "--corpus.documents", "manuals", "--corpus.questions", "manuals"),
    *("--corpus.manual-packages", "numpy", "--corpus.limit-pages", "100"),
    *("--agent.question-weight", "3", "--agent.max-tokens", "16", "--collect.proposals", '["question_keywords", "rm3"]'),
    *("--collect.limit", "6", "--collect.samples-per-question", "2", "--format.validation-fraction", "0.3"),
    *("--finetune.epochs", "1", "--evaluate.limit", "4", "--evaluate.baselines", "question"),
]
STAGES = ["index", "collect", "process", "format", "finetune", "evaluate"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of someone who has the token of a cluster of two nodes."""
    with start_nodes(PORTS, tmp_path_factory.mktemp("token") / "auth_token", num_nodes=2) as environment:
        yield environment


@pytest.mark.timeout(2400)
def test_each_stage_runs_as_a_job_that_has_an_empty_run_folder_and_the_uri_alone(cluster: dict[str, str], tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/store"
    for number, stage in enumerate(STAGES):
        run_dir = tmp_path / f"run_of_{stage}"
        options = [*OPTIONS, "--storage.uri", uri, "--run-dir", str(run_dir)]
        done = submit_job(PORTS, cluster, f"jobs/{stage}.py", *options)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
        assert f"{stage}: done in" in done.stdout
        assert f"{stage}: pushed to {uri}" in done.stdout
        pulled = set(re.findall(r"(\w+): pulled from", done.stdout))
        assert pulled <= set(STAGES[:number])
        assert bool(pulled) == (number > 0)
        verify_stage(run_dir / stage)
    assert (tmp_path / "run_of_evaluate" / "evaluate" / "report.html").is_file()


def test_a_job_that_was_stopped_goes_on_and_the_next_finds_its_work_in_the_store(cluster: dict[str, str], tmp_path: Path) -> None:
    """A job is stopped as the dashboard stops it; the next one goes on."""
    options = [*OPTIONS, "--storage.uri", f"file://{tmp_path}/store", "--run-dir", str(tmp_path / "run")]
    assert submit_job(PORTS, cluster, "jobs/index.py", *options).returncode == 0
    more = ["--collect.samples-per-question", "12", "--rollout.flush-s", "0"]
    begun = submit_job(PORTS, cluster, "jobs/collect.py", *options, *more, no_wait=True)
    found = re.search(r"raysubmit_\w+", begun.stdout)
    assert found, begun.stdout + begun.stderr
    journal = tmp_path / "run" / "collect" / "trajectories"
    deadline = time.monotonic() + 600
    while not list(journal.glob("*.parquet")):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    job = [str(RAY), "job"]
    stopped = run_command(cluster, *job, "stop", "--address", PORTS.job_server, found[0])
    assert "stopped" in stopped.stdout + stopped.stderr
    assert not (tmp_path / "run" / "collect" / "manifest.json").exists()
    done = submit_job(PORTS, cluster, "jobs/collect.py", *options, *more)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert "collect: going on" in done.stdout
    assert re.search(r"[1-9]\d* of \d+ rollouts are finished already", done.stdout)
