"""Hostile queries in a child process: no exception, no panic, no crash. `benchmarks/fuzz_queries.py` runs any number of them."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NUM_QUERIES = 20_000


def test_no_query_raises_panics_or_crashes() -> None:
    command = [sys.executable, "benchmarks/fuzz_queries.py", "--queries", str(NUM_QUERIES), "--seed", "1"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr[-2000:]
    result = json.loads(finished.stdout.splitlines()[-1])
    assert (result["queries"], result["failures"], result["exit_code"]) == (NUM_QUERIES, {}, 0)
