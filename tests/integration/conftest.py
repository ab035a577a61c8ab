"""Shared parts of an integration session: processes, a Ray in each, and their end.

The tests of a file stay together, and those that start engines for long stay in one process: nothing else that runs meanwhile
wants as much memory, and with two such processes Ray ended engines for lack of it. An engine has one thread, which no core is
kept for: threads that are bound to cores would wait for each other, spinning, wherever something else runs on one of these.

A process ends with what its tests came to. It has had Ray, gRPC, torch, ONNX and Arrow in it by then, and their threads are still
there when the interpreter takes itself apart; one of them ended a session with a segmentation fault after all tests had passed.
Nothing that is tested happens after a session, so the process ends without that.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from process_environments import ENDPOINT_KEY, READABLE
from ray_nodes import start_ray
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from drag_ray.cluster import tasks
from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.index import vector_parts

if TYPE_CHECKING:
    from vision_engine import VisionEngine

WITH_ENGINE = (
    *("page_images", "rerank_turns_engine", "tool_turns_engine"),
    *("rl_images", "rl_stage", "serve_routes", "serve_stage", "whole_loop"),
)
"""Files whose tests start vLLM, but for three that have one small engine for a short time."""
LONGEST = (
    *("whole_loop", "serve_stage", "collect_faults", "finetune_stage", "deepspeed", "job_submit"),
    *("collect_dispatch", "page_reading", "collect_endpoint", "finetune_images", "index_stage", "interrupted_stages"),
    "stage_outputs",
)
"""Files that begin before all others, so that none is still under way when a process has nothing left to do."""
os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}  # before PyTorch is imported
os.environ |= {"RAY_prestart_worker_first_driver": "0"}  # those would end unused: our workers have variables of their own
_STATUS = pytest.StashKey[int]()


def _name_file(path: str | Path) -> str:
    return Path(path).stem.removeprefix("test_")


class _EnginesTogether(LoadFileScheduling):
    """Gives a process whole files, and one of them all that start an engine."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "engine" if _name_file(file) in WITH_ENGINE else file


def pytest_configure(config: pytest.Config) -> None:
    if missing := {*WITH_ENGINE, *LONGEST}.difference(map(_name_file, Path(__file__).parent.rglob("test_*.py"))):
        raise pytest.UsageError(f"{__file__}: names files that are not there: {', '.join(sorted(missing))}")
    config.option.loadscopereorder = False  # by the number of their tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(_name_file(item.path), len(places)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _EnginesTogether:
    return _EnginesTogether(config, log)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    status = config.stash.get(_STATUS, None)
    if status is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_STATUS] = int(exitstatus)


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """A Ray with two CPUs for all tests of this process that are not about one: to start it takes as long as some of them do."""
    with start_ray({**READABLE, **ENDPOINT_KEY}) as address:
        yield address


@pytest.fixture(scope="module")
def local_ray(ray_address: str) -> Iterator[None]:
    """This process is connected to that Ray."""
    with connect(ClusterConfig(address=ray_address)):
        yield


@pytest.fixture
def rows_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go through models in this process. The actors of `map_rows`, each of which takes seconds to import PyTorch, are for
    tests of the index stage, of the teacher and of pages that are read."""

    def map_here(steps: Sequence[tasks.Step], rows: Sequence[dict[str, Any]], *_: object) -> Iterator[dict[str, Any]]:
        return map(tasks._Chain(steps), rows)

    for module in (tasks, vector_parts):
        monkeypatch.setattr(module, "map_rows", map_here)


@pytest.fixture(scope="session")
def vision_engine(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[VisionEngine]":
    """An engine with a model that sees, for all tests that look at what it is shown."""
    from vision_engine import start_vision_engine  # it imports PyTorch, which some of these processes do without

    with start_vision_engine(tmp_path_factory.mktemp("vision")) as engine:
        yield engine


@pytest.fixture(scope="session")
def model(vision_engine: "VisionEngine") -> str:
    """The folder of its model."""
    return vision_engine.model


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of as many MiB as the test's module calls `DISK_MIB`."""
    (mount := tmp_path / "disk").mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={request.module.DISK_MIB}m", "tmpfs", str(mount)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system of its own for this test: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)
