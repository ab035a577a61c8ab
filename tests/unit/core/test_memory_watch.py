"""What the benchmark of load says of memory over time."""

import os
import subprocess
import sys
import time

import pytest
from memory_watch import MemoryWatch


def add_up(watch: MemoryWatch, number: int) -> float:
    return sum(watch._samples[number][1].values())


def test_a_process_and_what_it_has_started_are_added_up() -> None:
    watch = MemoryWatch(os.getpid(), interval_s=60)
    watch.look()
    with subprocess.Popen([sys.executable, "-c", "held = b'x' * 40_000_000; input()"], stdin=subprocess.PIPE) as child:
        try:
            deadline = time.monotonic() + 30
            while add_up(watch, -1) - add_up(watch, 0) < 35:
                assert time.monotonic() < deadline
                time.sleep(0.05)
                watch.look()
        finally:
            child.communicate(b"\n")


def test_growth_is_found_and_named() -> None:
    watch = MemoryWatch(os.getpid(), interval_s=60)
    watch._samples = [(float(second), {"engine": 1000.0, "proxy": 100 + second / 10}, 50 + second) for second in range(601)]
    figures = watch.describe(300, 600)
    assert figures["slope_mib_per_minute"] == pytest.approx(6)
    assert figures["slopes_of_processes"] == {"proxy": pytest.approx(6)}
    assert (figures["first_mib"], figures["last_mib"]) == (1131, 1159)  # medians of the first and last 30 of 301 looks
    assert figures["open_files"] == [350, 650]
    assert figures["mib_over_time"][:2] == [(0, 1100), (10, 1101)]
