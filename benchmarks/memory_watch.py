"""Resident memory of a process and of all that it has started, over time."""

import re
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from watch import Watch

_MIB = 2**20
_NUM_KEPT = 60


class MemoryWatch(Watch):
    """Notes MiB by kind of process, and open files. Memory that processes share counts in each of them.

    Args:
        pid: of the process whose family is looked at.
        interval_s: seconds between looks.
    """

    def __init__(self, pid: int, interval_s: float) -> None:
        self.interval_s = interval_s
        self._root = psutil.Process(pid)
        self._began = time.monotonic()
        self._samples: list[tuple[float, dict[str, float], int]] = []

    def look(self) -> None:
        """Add up what the family has now."""
        mib, num_files = defaultdict[str, float](float), 0
        for process in [self._root, *self._root.children(recursive=True)]:
            try:
                mib[_name(process)] += process.memory_info().rss / _MIB
                num_files += process.num_fds()
            except psutil.Error:  # it has ended
                continue
        self._samples.append((time.monotonic() - self._began, mib, num_files))

    def describe(self, begin_s: float, end_s: float) -> dict[str, Any]:
        """Figures of the time from `begin_s` to `end_s`, in seconds since the watch was made: totals of some moments, what the
        family had in the first and in the last tenth, and the slope, by least squares, of all and of each kind of process that
        has grown or shrunk by more than half a MiB a minute.
        """
        chosen = [sample for sample in self._samples if begin_s <= sample[0] <= end_s]
        minutes = np.array([seconds / 60 for seconds, _, _ in chosen])
        totals = np.array([sum(mib.values()) for _, mib, _ in chosen])
        tenth = max(1, len(chosen) // 10)
        slopes = {
            name: _fit(minutes, [mib.get(name, 0) for _, mib, _ in chosen])
            for name in sorted({name for _, mib, _ in chosen for name in mib})
        }
        return {
            "from_s": round(begin_s),
            "to_s": round(end_s),
            "looks": len(chosen),
            "first_mib": round(float(np.median(totals[:tenth]))),
            "last_mib": round(float(np.median(totals[-tenth:]))),
            "peak_mib": round(float(max(sum(mib.values()) for _, mib, _ in self._samples))),
            "slope_mib_per_minute": _fit(minutes, totals),
            "slopes_of_processes": {name: slope for name, slope in slopes.items() if abs(slope) > 0.5},
            "open_files": [chosen[0][2], chosen[-1][2]],
            "mib_over_time": self._thin(),
        }

    def _thin(self) -> list[tuple[int, int]]:
        """(second, MiB) of moments all through."""
        step = max(1, len(self._samples) // _NUM_KEPT)
        return [(round(seconds), round(sum(mib.values()))) for seconds, mib, _ in self._samples[::step]]


def _fit(minutes: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray) -> float:
    return round(float(np.polyfit(minutes, values, 1)[0]), 2)


def _name(process: psutil.Process) -> str:
    """Name the kind of a process: the program or script that it runs, or its own title, without its present task."""
    words = [word for word in process.cmdline() if word]
    if not words:
        return process.name()
    title, _, _ = words[0].partition(" ")
    if title.startswith("ray::"):
        return re.split(r"[(.]", title)[0]
    if not Path(title).name.startswith("python"):
        return Path(title).name if title.startswith("/") else title
    return next((Path(word).name for word in words[1:] if word.endswith(".py")), "python")
