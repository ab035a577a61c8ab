"""Notes of benchmarks about memory over time, and about a simulated cluster."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from memory_watch import MemoryWatch
from simulation_notes import ENGINES_DIR_NAME, LOOKS_NAME, Notes


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


def test_replies_count_between_two_moments_and_fill_slots_while_they_last(tmp_path: Path) -> None:
    engines = tmp_path / ENGINES_DIR_NAME
    engines.mkdir()
    (engines / "1.replies").write_text("96.0 98.0 1\n98.0 102.0 0\n102.0 105.0 1\n109.0 111.0 1\n")
    (engines / "2.replies").write_text("101.0 109.0 1\n103.0 104.0 1")  # a line on its way
    assert Notes(tmp_path).describe_replies(100, 110, num_slots=4) == {
        "seconds": 10,
        "rollouts": 2,
        "rollouts_per_s": 0.2,
        "slots_taken": 0.35,
    }


def test_a_lost_node_is_noticed_when_fewer_are_seen_than_before(tmp_path: Path) -> None:
    looks = [(1, 4, 0), (2, 4, 5e6), (3, 4, 1e6), (4.5, 3, 0), (5, 3, 0)]
    lines = [{"at": at, "call_s": 0.1 * at, "nodes": nodes, "store_bytes": held} for at, nodes, held in looks]
    (tmp_path / LOOKS_NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    notes = Notes(tmp_path)
    assert notes.find_notice(2.5) == 2.0
    assert notes.find_notice(4.6) is None  # the one that is gone by then is another
    assert notes.describe_looks(1, 4) == {"call_s": {"num": 3, "p50": 0.2, "p99": 0.298, "max": 0.3}, "object_store_peak_mb": 5.0}
