"""How a session of integration tests ends: with what its tests came to.

One process has had Ray, gRPC, torch, ONNX and Arrow in it by then, and their threads are still there when the interpreter takes
itself apart; one of them ended a session with a segmentation fault after all tests had passed. Nothing that is tested happens
after a session, so the process ends without that.
"""

import os
import sys

import pytest

_STATUS = pytest.StashKey[int]()


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
