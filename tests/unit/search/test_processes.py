"""The processes of a pool: none outlives the one that asks it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.seconds

ASK_AND_DIE = """
import multiprocessing, os, signal
from concurrent.futures import ProcessPoolExecutor
from drag_ray.search.processes import end_with_parent

if __name__ == "__main__":
    pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), end_with_parent)
    list(pool.map(abs, range(100)))
    print(*pool._processes, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_processes_end_when_the_one_that_asks_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(ASK_AND_DIE)
    pids = tmp_path / "pids"  # a pipe would stay open as long as the processes
    with pids.open("w") as out:
        subprocess.run([sys.executable, str(script)], stdout=out, check=False)
    started = [Path("/proc") / pid for pid in pids.read_text().split()]
    assert started
    deadline = time.monotonic() + 30
    while any(path.exists() for path in started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(path.exists() for path in started)
