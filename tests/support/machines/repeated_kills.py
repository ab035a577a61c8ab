"""A stage whose process is killed at random moments, and started again until it has come to its end often enough."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psutil

KILLS: Counter[str] = Counter()
"""What was done so far, for `benchmarks/kill_stages.py`: kills, moves and copies of the folder, and ends that were checked."""
MARK = "begun"
"""A file that the process makes in its folder when it begins to work."""
_START_S = 180


class Started(Protocol):
    """A process that was started, as of `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def kill_and_resume(
    folder: Path, start: Callable[[Path], Started], check: Callable[[Path], None], num_kills: int, reset: Callable[[Path], None]
) -> None:
    """Kill what is started `num_kills` times, at a moment of its work; the folder stays, is moved or copied between starts.

    Args:
        folder: what the process works in.
        check: looks at what a process has left that came to its end.
        reset: lets the next one begin anew.
    """
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    begun = _begin(folder, start)
    assert begun.wait(timeout=_START_S) == 0
    check(folder)
    works_s, killed = time.time() - (folder / MARK).stat().st_mtime, 0
    reset(folder)
    while True:
        process = _begin(folder, start)
        if killed < num_kills:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=chance.uniform(0, works_s))
            if process.poll() is None:
                _kill(process, chance)
                killed += 1
                folder = _relocate(folder, chance, killed)
                continue
        assert process.wait(timeout=_START_S) == 0
        check(folder)
        KILLS["ends"] += 1
        if killed == num_kills:
            return
        reset(folder)


def _begin(folder: Path, start: Callable[[Path], Started]) -> Started:
    (folder / MARK).unlink(missing_ok=True)
    process, deadline = start(folder), time.monotonic() + _START_S
    while not (folder / MARK).exists():
        assert process.poll() is None, "it ended before it began"
        assert time.monotonic() < deadline, "it did not begin in time"
        time.sleep(0.01)
    return process


def _kill(process: Started, chance: random.Random) -> None:
    """The process first; what it has started may write on for a moment."""
    started = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(chance.choice([0, 1]) if started else 0)
    for child in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(started, timeout=10)
    KILLS["kills"] += 1


def _relocate(folder: Path, chance: random.Random, number: int) -> Path:
    """The folder where the next process finds it."""
    target, how = folder.with_name(f"place{number}"), chance.choice(["stays", "moves", "copies"])
    if how == "stays":
        return folder
    KILLS[how] += 1
    if how == "moves":
        return folder.rename(target)
    shutil.copytree(folder, target, symlinks=True)
    shutil.rmtree(folder)
    return target
