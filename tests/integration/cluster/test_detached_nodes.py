"""A collection on two nodes that share no disk: what it reads lies in a store that speaks S3 (moto's server).

For the second node the folder of the run is another one, and empty.
"""

import asyncio
import dataclasses
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import ray
import ray.cloudpickle
from factories import build_question
from PIL import Image
from ray_nodes import Ports, start_nodes
from s3_server import make_place, serve_s3
from small_index import write_index

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.cluster.connection import ClusterConfig, connect, ensure_token, locate_token
from drag_ray.cluster.tasks import run_tasks
from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import GenerateFn, Generation, ImageSource, Request, list_images
from drag_ray.errors import ConfigError
from drag_ray.rollout import journal
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.failures import ENGINE_DIED
from drag_ray.rollout.folder import PROBLEMS_NAME
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import run_plan
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.stage_runs.store import StageStore
from drag_ray.storage.artifacts import Identity
from drag_ray.storage.file_access import open_own_folder
from drag_ray.storage.object_store import StorageConfig
from drag_ray.types import Page, Question

PORTS = Ports(gcs=6394, dashboard=8294, client=9894)
SETTINGS = RolloutConfig(num_engines=2, concurrent_rollouts=2, chunk_rollouts=2, flush_s=0)
WORDS = ("rotor", "spar", "valve", "pump")

# The engines' processes cannot import this file.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


def can_hide() -> bool:
    """Tell whether this process may show another process other disks."""
    return not os.geteuid() and not subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode


pytestmark = pytest.mark.skipif(not can_hide(), reason="another view of the disks needs root and unshare")


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with serve_s3() as address:
        yield make_place(address, "detached", monkeypatch)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run whose index has pages with pictures."""
    with StageFolder(tmp_path / "run" / "index", Identity("index", {}, {})) as folder:
        pictures = ImageStore(folder.path / DIR_NAME)
        keys = [pictures.write(Image.new("RGB", (60, 80), (60 * number, 0, 0))) for number in range(len(WORDS))]
        pages = [Page("a.pdf", n, len(WORDS), f"{word} {WORDS[0]}", image=keys[n - 1]) for n, word in enumerate(WORDS, start=1)]
        write_index(folder.path, pages, [])
        folder.finish({})
    return tmp_path / "run"


@pytest.fixture
def cluster(uri: str, run_dir: Path) -> Iterator[None]:
    """A driver on the first of two nodes with a CPU each."""
    ensure_token(may_create=True)  # a process of Ray's reads one token alone
    address = ClusterConfig(address=f"127.0.0.1:{PORTS.gcs}")
    with start_nodes(PORTS, locate_token(), num_nodes=2, cpus_per_node=1, hidden=run_dir), connect(address):
        yield


def build_options(run_dir: Path, notes: Path, uri: str) -> WorkerOptions:
    """Engines that open the pictures that they are shown and note where they are; one that does not see the run dies once."""
    inputs = Inputs({"index": run_dir / "index"}, run_dir, StorageConfig(uri=uri))

    def build_engine(config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]) -> GenerateFn:
        assert images
        name = "sees" if (run_dir / "index").exists() else "detached"

        async def generate(request: Request) -> Generation:
            shown = [images.open(key).getpixel((30, 40)) for key in list_images(request.messages)]
            with (notes / name).open("a") as file:
                file.write(json.dumps(shown) + "\n")
            if name == "detached" and shown and not (notes / "killed").exists():
                (notes / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            while name == "sees" and not (notes / "killed").exists():  # both have something to do
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.3)
            return Generation(f"<search>{WORDS[request.seed % len(WORDS)]}</search>", (), (1,), "stop")

        return generate

    return WorkerOptions(
        run_dir=run_dir / "collect",
        index_dir=run_dir / "index" / "search_index",
        agent=AgentConfig(query_mode="rewrite", page_view="image", max_iterations=2, top_k=2),
        engine=EngineConfig(device="cpu"),
        policies={"": Policy("scripted")},
        concurrent_rollouts=SETTINGS.concurrent_rollouts,
        flush_s=SETTINGS.flush_s,
        max_tries=SETTINGS.max_tries,
        image_dirs=(run_dir / "index" / DIR_NAME, run_dir / "index" / "question_images"),
        node_dir=notes / "node",
        stored=inputs.list_stored(),
        build_engine=build_engine,
    )


def look(folder: Path, number: int) -> tuple[bool, str]:
    """Tell whether a folder is there, and on which node."""
    return folder.exists(), ray.get_runtime_context().get_node_id()


@pytest.mark.slow
def test_a_node_that_shares_no_disk_takes_index_and_pictures_from_the_store_and_gives_its_rollouts_to_the_driver(
    cluster: None, run_dir: Path, uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    StageStore(StorageConfig(uri=uri)).push(run_dir, "index")
    (notes := tmp_path / "notes").mkdir()
    options = build_options(run_dir, notes, uri)
    questions: list[Question] = [build_question(id=f"q{number}") for number in range(8)]
    plan = build_plan(questions, ("default",), 2, run_seed=0)
    counts = run_plan(plan, options, SETTINGS, "test")
    assert (counts["finished"], counts["unfinished"], counts["set_aside"]) == (16, 0, 0)
    rows = journal.read_trajectories(options.run_dir).to_pylist()
    assert Counter(row["id"] for row in rows) == Counter(task.id for task in plan)
    problems = [json.loads(line) for line in (options.run_dir / PROBLEMS_NAME).read_text().splitlines()]
    assert {problem["reason"] for problem in problems} == {f"{ENGINE_DIED}; finished in a later try"}
    seen, detached = ([json.loads(line) for line in (notes / name).read_text().splitlines()] for name in ("sees", "detached"))
    assert len(seen) >= 4
    assert len(detached) >= 4
    # Each picture is what the page looks like: JPEG keeps a colour but for a level or two.
    reds = {round(red / 60) for shown in detached for red, _, _ in shown}
    assert len(reds) >= 2
    assert all(abs(red - 60 * round(red / 60)) <= 2 for shown in detached for red, _, _ in shown)
    fetched = [
        path.relative_to(open_own_folder(notes / "node") / "images").as_posix()
        for path in (open_own_folder(notes / "node") / "images").glob("*/*.jpg")
    ]
    assert len(fetched) == len(reds)
    assert all(re.fullmatch(r"[0-9a-f]{2}/[0-9a-f]{32}\.jpg", key) for key in fetched)
    [copy] = (open_own_folder(notes / "node") / "stages").glob("*/index")
    assert (copy / "search_index").is_dir()
    assert not (copy / DIR_NAME).exists()
    # Tasks that read and write in the folder of the run are given to the node that sees it.
    caplog.set_level(logging.WARNING)
    looked = list(run_tasks(look, [(run_dir / "index", number) for number in range(4)], run_dir))
    assert looked == [(True, ray.get_runtime_context().get_node_id())] * 4
    assert f"1 of 2 nodes do not see {run_dir}" in caplog.text
    shutil.rmtree(options.run_dir)  # a run that fails keeps its engines' CPUs while pytest keeps its error: it comes last
    with pytest.raises(ConfigError, match=r"the node \S+ does not see .*storage\.uri .*rollout\.node_dir"):
        run_plan(plan, dataclasses.replace(options, stored=()), SETTINGS, "test")
