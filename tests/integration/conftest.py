"""What the integration tests of a session share: two processes, and how these end.

The tests of a file stay together, and the files that start engines in two groups, so that no more than two want memory
and threads at a time, and both processes have enough to do.

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

TOGETHER = {
    "engine": ("engine_adapters", "kept_engines", "local_judge", "page_images", "rerank_turns_engine", "tool_turns_engine"),
    "endpoint": ("serve_adapters", "serve_routes", "serve_stage", "whole_loop"),
}
"""Files whose tests start vLLM; a group stays in one process."""
_STATUS = pytest.StashKey[int]()


class _EnginesTogether(LoadFileScheduling):
    """Gives a process whole files, and all files of a group."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        name = Path(file).stem.removeprefix("test_")
        return next((group for group, names in TOGETHER.items() if name in names), file)


def pytest_configure() -> None:
    names = [name for group in TOGETHER.values() for name in group]
    if missing := [name for name in names if not (Path(__file__).parent / f"test_{name}.py").exists()]:
        raise pytest.UsageError(f"{__file__}: TOGETHER names files that are not there: {', '.join(missing)}")


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
