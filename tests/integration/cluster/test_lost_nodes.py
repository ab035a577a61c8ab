"""A node is lost while a stage works on it, or its network cuts it off while its processes go on: all comes out as without that.

Of collections `test_collect_faults` has more. The nodes have network namespaces of their own; head and driver are outside.
How long what was lost took to be done again, and how much of it there was, the tests record as properties, which
`benchmarks/lose_nodes.py` keeps.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
import ray.cloudpickle
from chat_server import Answer, serve_chat
from nano_training import make_nano_model, write_rows
from network_nodes import Network, has_namespaces, start_network
from ports import find_port
from reportlab.pdfgen.canvas import Canvas
from small_index import finish_index
from word_rl import OPTIONS, check_course
from word_rl import write_index as write_rl_index

from drag_ray.cluster.connection import ClusterConfig, connect, ensure_token
from drag_ray.cluster.tasks import run_tasks
from drag_ray.finetune.outputs import checkpoints
from drag_ray.rl.learning import locate_step
from drag_ray.rollout.folder import TRAJECTORIES_DIR_NAME
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity, require_manifest
from drag_ray.types import Evidence, Page, Question

ROOT = Path(__file__).parents[3]
both_ways = pytest.mark.parametrize("way", ["lose", "cut_off"])
Record = Callable[[str, float], None]

# The tasks' processes cannot import this file.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.skipif(not has_namespaces(), reason="network namespaces need root and iproute2")


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    ensure_token(may_create=True)
    with start_network(num_nodes=2) as network:
        for name, value in network.environment.items():
            monkeypatch.setenv(name, value)
        yield network


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Notes a figure beside the test's result."""
    return lambda name, value: request.node.user_properties.append((name, value))


def lose_node(network: Network, way: str, worker: str) -> float:
    """Lose a node that has a process of such a name, or cut it off; returns when that was."""
    working = [node for node in network.nodes if node.has_worker(worker)]
    assert working, f"no node has a process {worker!r}"
    getattr(working[0], way)()
    return time.monotonic()


class Job:
    """A stage that runs in a process of its own.

    Attributes:
        said: the lines of its output until now, and when they came.
    """

    def __init__(self, network: Network, stage: str, run_dir: Path, *options: str) -> None:
        command = [sys.executable, f"jobs/{stage}.py", "--run-dir", str(run_dir), "--cluster.address", network.address, *options]
        streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen(command, cwd=ROOT, env=dict(os.environ), **streams)
        self.said: list[tuple[float, str]] = []
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append((time.monotonic(), line))

    @property
    def output(self) -> str:
        """All lines."""
        return "".join(line for _, line in self.said)

    def wait_for(self, has_come: Callable[[], object], timeout_s: float = 240) -> None:
        """Until something has come, which it must before the job ends."""
        deadline = time.monotonic() + timeout_s
        while not has_come():
            assert self.process.poll() is None, self.output[-3000:]
            assert time.monotonic() < deadline, self.output[-3000:]
            time.sleep(0.05)

    def end(self, timeout_s: float = 240) -> None:
        """Wait until it has ended well."""
        try:
            self.process.wait(timeout_s)
        finally:
            self.process.kill()
            self._listener.join()
        assert self.process.returncode == 0, self.output[-3000:]


def run_job(
    network: Network,
    way: str,
    worker: str,
    has_come: Callable[[], object],
    *command: Any,
    watch: Callable[[], object] = lambda: None,
) -> tuple[Job, float]:
    """A job that has ended, and when a node with such a worker was lost, as soon as something had come.

    Args:
        watch: called often, until the job has ended.
    """
    job = Job(network, *command)
    try:
        job.wait_for(has_come)
        assert job.process.poll() is None, "it ended before a node was lost"
        lost_at = lose_node(network, way, worker)
    except BaseException:
        job.process.kill()
        raise
    while job.process.poll() is None:
        watch()
        time.sleep(0.05)
    job.end()
    return job, lost_at


def record_again(record: Record, begun: Sequence[tuple[float, object]], lost_at: float) -> int:
    """Record what was done twice: how much, which is returned, and how long after the loss the first of it was done again."""
    seen = Counter[object]()
    again = list[float]()
    for at, item in begun:
        if seen[item]:
            again.append(at - lost_at)
        seen[item] += 1
    record("repeated", len(again))
    if again:
        record("recovered_s", again[0])
    return len(again)


@pytest.mark.parametrize("way", ["lose", pytest.param("cut_off", marks=pytest.mark.slow)])
def test_tasks_of_process_and_format_run_again_elsewhere(network: Network, tmp_path: Path, way: str, record: Record) -> None:
    def square(number: int) -> int:
        (tmp_path / f"{number} {time.monotonic_ns()}").touch()
        time.sleep(0.4)
        return number**2

    with connect(ClusterConfig(address=network.address)), ThreadPoolExecutor() as threads:
        computed = threads.submit(lambda: list(run_tasks(square, [(number,) for number in range(16)], tmp_path)))
        while len(list(tmp_path.iterdir())) < 4:
            assert not computed.done(), computed.result()
            time.sleep(0.05)
        lost_at = lose_node(network, way, "ray::square")
        assert computed.result(timeout=120) == [number**2 for number in range(16)]
    begun = [(int(path.name.split()[1]) / 1e9, path.name.split()[0]) for path in tmp_path.iterdir()]
    assert record_again(record, sorted(begun), lost_at)


@pytest.mark.slow
@both_ways
def test_documents_are_read_again_elsewhere(network: Network, tmp_path: Path, way: str, record: Record) -> None:
    (documents := tmp_path / "documents").mkdir()
    for number in range(240):
        canvas = Canvas(str(documents / f"{number:03}.pdf"))
        for page in range(20):
            canvas.drawString(72, 700, f"Page {page} of document {number}")
            canvas.showPage()
        canvas.save()
    parts_dir, written = tmp_path / "run" / "index" / "parts", list[tuple[float, Path]]()
    versions = set[tuple[Path, int]]()

    def look() -> int:
        """Note when each part was written, and written again."""
        for path in parts_dir.glob("*.parquet"):
            with contextlib.suppress(FileNotFoundError):  # they are removed in the end
                version = path, path.stat().st_mtime_ns
                if version not in versions:
                    versions.add(version)
                    written.append((time.monotonic(), path))
        return len(written)

    options = ("--corpus.documents", str(documents), "--corpus.questions", "")
    _, lost_at = run_job(network, way, "ray::Map", lambda: look() >= 10, "index", tmp_path / "run", *options, watch=look)
    pages = pl.read_parquet(tmp_path / "run" / "index" / "pages.parquet", columns=["file", "page_number"])
    assert pages.height == pages.unique().height == 240 * 20
    assert require_manifest(tmp_path / "run" / "index").counts["set_aside"] == 0
    num_again = record_again(record, written, lost_at)
    assert (
        num_again or way == "lose"
    )  # a node that is cut off writes the part that it has begun, one that is killed may have none


@pytest.mark.slow
@both_ways
def test_an_evaluation_has_every_question_once(network: Network, tmp_path: Path, way: str, record: Record) -> None:
    numbers = range(1, 41)
    pages = [Page("a.pdf", number, 40, f"The part{number} of a plane.") for number in numbers]
    questions = [
        Question(f"q{number}", f"What is part {number}?", (Evidence("a.pdf", number),), split="test") for number in numbers
    ]
    finish_index(tmp_path, pages, questions)
    asked = list[tuple[float, object]]()

    def answer(body: dict[str, Any], number: int) -> Answer:
        part = re.findall(r"part (\d+)", body["messages"][-1]["content"])[-1]
        asked.append((time.monotonic(), part))
        return Answer(f"<search>part{part}</search>", seconds=1.0)

    with serve_chat(answer, network.host) as served:
        engine = ("--engine.backend", "openai", "--engine.model", "teacher", "--engine.endpoint.address", served.address)
        spread = ("--rollout.num-engines", "2", "--rollout.concurrent-rollouts", "2", "--rollout.chunk-rollouts", "2")
        options = (*engine, *spread, "--agent.max-iterations", "1", "--rollout.flush-s", "0")
        job, lost_at = run_job(network, way, "ray::MapWorker", lambda: len(asked) >= 8, "evaluate", tmp_path, *options)
    results = pl.read_ndjson(tmp_path / "evaluate" / "results.jsonl").filter(policy="base")
    assert results["question_id"].n_unique() == results.height == 40, job.output[-2000:]
    assert results["first_search_rank"].to_list() == [1] * 40
    assert record_again(record, asked, lost_at)


@pytest.mark.slow
@both_ways
def test_a_training_goes_on_from_its_last_checkpoint_elsewhere(
    network: Network, tmp_path: Path, way: str, record: Record
) -> None:
    model = make_nano_model(tmp_path / "model", hidden_size=32)
    run_dir = tmp_path / "run"
    with StageFolder(run_dir / "format", Identity("format", {}, {})) as stage:
        write_rows(run_dir, 240)
        stage.finish({"sft_query": 240})
    options = {"epochs": 1, "batch-size": 2, "checkpoint-steps": 10, "dtype": "float32", "device": "cpu", "num-workers": 1}
    given = [part for name, value in options.items() for part in (f"--finetune.{name}", str(value))]

    def has_checkpoints() -> bool:
        return len(list((run_dir / "finetune" / checkpoints.DIR_NAME).glob("*/whole-0-of-1-*.jsonl"))) >= 2

    command = ("finetune", run_dir, "--engine.model", str(model), "--no-finetune.merge", *given)
    job, lost_at = run_job(network, way, "Train", has_checkpoints, *command)
    found = [(at, re.search(r"finetune step (\d+)/120", line)) for at, line in job.said]
    steps = [(at, int(step[1])) for at, step in found if step]
    assert [step for _, step in steps].count(1) == 1, "it began anew"
    assert steps[-1][1] == 120
    curve = [json.loads(line) for line in (run_dir / "finetune" / "curve.jsonl").read_text().splitlines()]
    assert [point["step"] for point in curve if "loss" in point] == list(range(1, 121))
    assert (run_dir / "finetune" / "adapter" / "adapter_model.safetensors").exists()
    # What the worker said before it was lost takes a moment to the driver, and the next one several to start.
    record("recovered_s", next(at for at, _ in steps if at > lost_at + 3) - lost_at)
    record("repeated", len(steps) - 120)


@pytest.mark.slow
@pytest.mark.parametrize("way", [pytest.param("lose", id="lose-for-good")])
def test_a_training_goes_on_with_the_worker_that_is_left(network: Network, tmp_path: Path, way: str, record: Record) -> None:
    model = make_nano_model(tmp_path / "model", hidden_size=32)
    run_dir = tmp_path / "run"
    with StageFolder(run_dir / "format", Identity("format", {}, {})) as stage:
        write_rows(run_dir, 240)
        stage.finish({"sft_query": 240})
    options = {"epochs": 1, "batch-size": 2, "checkpoint-steps": 5, "dtype": "float32", "device": "cpu", "deepspeed": "off"}
    options |= {"num-workers": 2, "min-workers": 1}
    given = [part for name, value in options.items() for part in (f"--finetune.{name}", str(value))]

    def count_checkpoints(num_workers: int) -> int:
        folder = run_dir / "finetune" / checkpoints.DIR_NAME
        return len(list(folder.glob(f"*/whole-0-of-{num_workers}-*.jsonl")))

    command = ("finetune", run_dir, "--engine.model", str(model), "--no-finetune.merge", *given)
    job, lost_at = run_job(network, way, "Train", lambda: count_checkpoints(2) >= 2, *command)
    assert count_checkpoints(1) >= 1
    found = [(at, re.search(r"finetune step (\d+)/60", line)) for at, line in job.said]
    steps = [(at, int(step[1])) for at, step in found if step]
    assert [step for _, step in steps].count(1) == 1, "it began anew"
    curve = [json.loads(line) for line in (run_dir / "finetune" / "curve.jsonl").read_text().splitlines()]
    assert [point["step"] for point in curve if "loss" in point] == list(range(1, 61))
    record("recovered_s", next(at for at, _ in steps if at > lost_at + 3) - lost_at)
    record("repeated", len(steps) - 60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_reinforcement_learning_skips_no_group_and_trains_on_none_twice(network: Network, tmp_path: Path) -> None:
    write_rl_index(tmp_path)
    given = list[str]()
    for option, value in (
        (f"{section}.{name}".replace("_", "-"), own) for section in OPTIONS for name, own in OPTIONS[section].items()
    ):
        is_off, text = value is False, [] if isinstance(value, bool) else [value if isinstance(value, str) else json.dumps(value)]
        given += [f"--{'no-' * is_off}{option}", *text]
    rollouts = locate_step(tmp_path / "rl", 1) / TRAJECTORIES_DIR_NAME
    run_job(network, "lose", "ray::KeptWorker", lambda: any(rollouts.glob("*")), "rl", tmp_path, *given)
    check_course(tmp_path / "rl")


@pytest.mark.slow
@both_ways
def test_an_endpoint_answers_again_from_another_node_and_without_its_driver(
    network: Network, tmp_path: Path, way: str, record: Record
) -> None:
    port = find_port()
    options = {"engine.max-model-len": 512, "engine.max-num-seqs": 4, "serve.port": port, "serve.device": "cpu"}
    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    body = {"model": "base", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 2}

    def ask() -> int:
        return httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=120).status_code

    job = Job(network, "serve", tmp_path, *given)
    try:
        job.wait_for(lambda: "Ctrl-C ends it" in job.output, timeout_s=400)
        assert ask() == 200
        lost_at, statuses = lose_node(network, way, "ray::ServeReplica"), list[int]()
        while not statuses or statuses[-1] != 200:
            assert time.monotonic() < lost_at + 400, statuses
            statuses.append(ask())
            time.sleep(0.5)
        record("recovered_s", time.monotonic() - lost_at)
        assert set(statuses[:-1]) <= {503}  # Ray Serve keeps requests that it had when the node was lost
    finally:
        job.process.kill()
    time.sleep(15)  # Ray ends what belongs to a driver that is gone; an endpoint of a cluster belongs to nobody
    assert ask() == 200
