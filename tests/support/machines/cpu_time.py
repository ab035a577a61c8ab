"""CPU time of programs, by that of a small known one: what other work on a machine adds to the wall clock is not their fault, and
neither are slow cores."""

import resource
import subprocess
import sys
import time
from pathlib import Path

_KNOWN = ("-c", "import pydantic_settings, pyarrow")
"""What every command imports."""
_TRIES = 4
_PAUSE_S = 5
"""before another try: what runs beside it takes caches of a core, and that for seconds"""
QUICK = 3.25
"""times the CPU time of `_KNOWN`: commands take about two and a half times as much, and Ray's import alone adds another one"""


def run_quickly(*arguments: str, cwd: Path) -> str:
    """The output of Python with these arguments, within `QUICK` in one of some tries."""
    taken: list[float] = []
    for _ in range(_TRIES):
        _, known_s = _run(_KNOWN, cwd)
        written, taken_s = _run(arguments, cwd)
        taken.append(taken_s / known_s)
        if taken[-1] < QUICK:
            return written
        time.sleep(_PAUSE_S)
    raise AssertionError(f"{arguments}: takes {taken} times the CPU time of {_KNOWN}")


def _run(arguments: tuple[str, ...], cwd: Path) -> tuple[str, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
