"""Waiting for what other processes do."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], timeout_s: float = 120) -> None:
    """Return as soon as a condition holds, which it must in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
