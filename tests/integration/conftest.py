"""What the integration tests of a session share: two processes, and how these end.

The tests of a file stay together, and those that start an engine all stay in one process: nothing else that runs meanwhile wants
as much memory and as many threads.

A process ends with what its tests came to. It has had Ray, gRPC, torch, ONNX and Arrow in it by then, and their threads are still
there when the interpreter takes itself apart; one of them ended a session with a segmentation fault after all tests had passed.
Nothing that is tested happens after a session, so the process ends without that.
"""

import os
import sys
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

WITH_ENGINE = (
    *("engine_adapters", "engine_pool", "local_judge", "page_images", "rerank_turns_engine", "tool_turns_engine"),
    *("serve_adapters", "serve_routes", "serve_stage", "whole_loop"),
)
"""Files whose tests start vLLM."""
_STATUS = pytest.StashKey[int]()


class _EnginesTogether(LoadFileScheduling):
    """Gives a process whole files, and one of them all that start an engine."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "engine" if Path(file).stem.removeprefix("test_") in WITH_ENGINE else file


def pytest_configure() -> None:
    if missing := [name for name in WITH_ENGINE if not (Path(__file__).parent / f"test_{name}.py").exists()]:
        raise pytest.UsageError(f"{__file__}: WITH_ENGINE names files that are not there: {', '.join(missing)}")


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
