"""A node is lost while a stage works on it, or its network cuts it off while its processes go on: all comes out as without that.

Of collections `test_collect_faults` has more. The nodes have network namespaces of their own; head and driver are outside.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import ray.cloudpickle
from chat_server import Answer, serve_chat
from nano_training import make_nano_model, write_rows
from network_nodes import Network, has_namespaces, start_network
from reportlab.pdfgen.canvas import Canvas
from small_index import finish_index

from drag_ray.artifacts import Identity, require_manifest
from drag_ray.cluster import ClusterConfig, connect, run_tasks
from drag_ray.cluster_token import ensure_token
from drag_ray.finetune import checkpoints
from drag_ray.stage_folder import StageFolder
from drag_ray.types import Evidence, Page, Question

ROOT = Path(__file__).parents[2]
both_ways = pytest.mark.parametrize("way", ["lose", "cut_off"])

# The tasks' processes cannot import this file.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="network namespaces need root and iproute2"),
]


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    ensure_token(may_create=True)
    with start_network(num_nodes=2) as network:
        for name, value in network.environment.items():
            monkeypatch.setenv(name, value)
        yield network


def lose_node(network: Network, way: str, worker: str) -> None:
    """Lose a node that has a process of such a name, or cut it off."""
    working = [node for node in network.nodes if node.has_worker(worker)]
    assert working, f"no node has a process {worker!r}"
    getattr(working[0], way)()


def run_job(network: Network, stage: str, run_dir: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, f"jobs/{stage}.py", "--run-dir", str(run_dir), "--cluster.address", network.address, *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ))


def end_job(job: subprocess.Popen[str], loses: Callable[[], None], has_come: Callable[[], bool]) -> str:
    """What a job says that loses a node once something has come."""
    try:
        deadline = time.monotonic() + 180
        while not has_come():
            assert job.poll() is None, job.communicate()[0][-3000:]
            assert time.monotonic() < deadline, "it does not come"
            time.sleep(0.05)
        assert job.poll() is None, "it ended before a node was lost"
        loses()
        said = job.communicate(timeout=240)[0]
    finally:
        job.kill()
    assert job.returncode == 0, said[-3000:]
    return said


@both_ways
def test_tasks_of_process_and_format_run_again_elsewhere(network: Network, tmp_path: Path, way: str) -> None:
    def square(number: int) -> int:
        (tmp_path / str(number)).touch()
        time.sleep(0.4)
        return number**2

    with connect(ClusterConfig(address=network.address)), ThreadPoolExecutor() as threads:
        computed = threads.submit(lambda: list(run_tasks(square, [(number,) for number in range(16)])))
        while len(list(tmp_path.iterdir())) < 4:
            assert not computed.done(), computed.result()
            time.sleep(0.05)
        lose_node(network, way, "ray::square")
        assert computed.result(timeout=120) == [number**2 for number in range(16)]


@both_ways
def test_documents_are_read_again_elsewhere(network: Network, tmp_path: Path, way: str) -> None:
    (documents := tmp_path / "documents").mkdir()
    for number in range(240):
        canvas = Canvas(str(documents / f"{number:03}.pdf"))
        for page in range(20):
            canvas.drawString(72, 700, f"Page {page} of document {number}")
            canvas.showPage()
        canvas.save()
    job = run_job(network, "index", tmp_path / "run", "--corpus.documents", str(documents), "--corpus.questions", "")
    parts = tmp_path / "run" / "index" / "parts"
    end_job(job, lambda: lose_node(network, way, "ray::Map"), lambda: len(list(parts.glob("*.parquet"))) >= 10)
    pages = pl.read_parquet(tmp_path / "run" / "index" / "pages.parquet", columns=["file", "page_number"])
    assert pages.height == pages.unique().height == 240 * 20
    assert require_manifest(tmp_path / "run" / "index").counts["set_aside"] == 0


@both_ways
def test_an_evaluation_has_every_question_once(network: Network, tmp_path: Path, way: str) -> None:
    numbers = range(1, 41)
    pages = [Page("a.pdf", number, 40, f"The part{number} of a plane.") for number in numbers]
    questions = [
        Question(f"q{number}", f"What is part {number}?", (Evidence("a.pdf", number),), split="test") for number in numbers
    ]
    finish_index(tmp_path, pages, questions)

    def answer(body: dict[str, Any], number: int) -> Answer:
        asked = re.findall(r"part (\d+)", body["messages"][-1]["content"])[-1]
        return Answer(f"<search>part{asked}</search>", seconds=1.0)

    with serve_chat(answer, network.host) as served:
        engine = ("--engine.backend", "openai", "--engine.model", "teacher", "--engine.endpoint.address", served.address)
        spread = ("--rollout.num-engines", "2", "--rollout.concurrent-rollouts", "2", "--rollout.chunk-rollouts", "2")
        job = run_job(network, "evaluate", tmp_path, *engine, *spread, "--agent.max-iterations", "1", "--rollout.flush-s", "0")
        said = end_job(job, lambda: lose_node(network, way, "ray::MapWorker"), lambda: len(served.asked) >= 8)
    results = pl.read_ndjson(tmp_path / "evaluate" / "results.jsonl").filter(policy="base")
    assert results["question_id"].n_unique() == results.height == 40, said[-2000:]
    assert results["first_search_rank"].to_list() == [1] * 40


def test_a_training_goes_on_from_its_last_checkpoint_elsewhere(network: Network, tmp_path: Path) -> None:
    model = make_nano_model(tmp_path / "model", hidden_size=32)
    run_dir = tmp_path / "run"
    with StageFolder(run_dir / "format", Identity("format", {}, {}, "test")) as stage:
        write_rows(run_dir, 240)
        stage.finish({"sft_query": 240})
    options = {"epochs": 1, "batch-size": 2, "checkpoint-steps": 10, "dtype": "float32", "device": "cpu", "num-workers": 1}
    given = [part for name, value in options.items() for part in (f"--finetune.{name}", str(value))]
    job = run_job(network, "finetune", run_dir, "--engine.model", str(model), "--no-finetune.merge", *given)

    def has_checkpoints() -> bool:
        return len(list((run_dir / "finetune" / checkpoints.DIR_NAME).glob("*/whole-0-of-1-*.jsonl"))) >= 2

    said = end_job(job, lambda: lose_node(network, "lose", "Train"), has_checkpoints)
    steps = [int(step) for step in re.findall(r"finetune step (\d+)/120", said)]
    assert steps.count(1) == 1, "it began anew"
    assert steps[-1] == 120
    curve = [json.loads(line) for line in (run_dir / "finetune" / "curve.jsonl").read_text().splitlines()]
    assert [point["step"] for point in curve if "loss" in point] == list(range(1, 121))
    assert (run_dir / "finetune" / "adapter" / "adapter_model.safetensors").exists()
