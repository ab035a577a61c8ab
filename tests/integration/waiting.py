"""Waiting for what other processes do. It lies beside the tests, for those of them that are started as scripts as well."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], timeout_s: float = 120) -> None:
    """Return as soon as a condition holds, which it must in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
