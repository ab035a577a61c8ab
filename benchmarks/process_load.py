"""Load of the processor by processes, by their part in the measured work."""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field

import psutil

_SAMPLE_EVERY_S = 1.0

Role = Callable[[str], str]
"""The part of a process, by its command line; empty for one that is not looked at."""


@dataclass
class ProcessLoad:
    """CPU seconds by the part of a process, filled while the block of `watch_processes` runs.

    Attributes:
        cpu_s: of all processes of a part together.
        peak_cores: of the busiest process of a part, in its busiest second: near 1 for a Python process that can do no more.
    """

    cpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    peak_cores: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def summarize(self, num_requests: int) -> dict[str, dict[str, float]]:
        """CPU milliseconds a request and peak by part."""
        return {
            role: {
                "cpu_ms_per_request": round(1e3 * seconds / max(1, num_requests), 3),
                "peak_cores": round(self.peak_cores[role], 3),
            }
            for role, seconds in sorted(self.cpu_s.items())
        }


@contextlib.contextmanager
def watch_processes(roots: Iterable[int], role: Role) -> Generator[ProcessLoad]:
    """Watch the processes of these ids and all that they start, until the block ends."""
    load, ended = ProcessLoad(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(list(roots), role, load, ended))
    watcher.start()
    try:
        yield load
    finally:
        ended.set()
        watcher.join()


def _watch(roots: list[int], role: Role, load: ProcessLoad, ended: threading.Event) -> None:
    before = dict(_read_cpu(roots, role))
    sampled_at, is_last = time.monotonic(), False
    while not is_last:
        is_last = ended.wait(_SAMPLE_EVERY_S)
        seconds = time.monotonic() - sampled_at
        sampled_at += seconds
        now = dict(_read_cpu(roots, role))
        for process, cpu_s in now.items():
            spent = cpu_s - before.get(process, 0.0)
            load.cpu_s[process[1]] += spent
            if seconds > _SAMPLE_EVERY_S / 2:
                load.peak_cores[process[1]] = max(load.peak_cores[process[1]], spent / seconds)
        before = now


def _read_cpu(roots: list[int], role: Role) -> Generator[tuple[tuple[int, str], float]]:
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(root)
            for process in (parent, *parent.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    part = role(" ".join(process.cmdline()))
                    times = process.cpu_times()
                    if part:
                        yield (process.pid, part), times.user + times.system
