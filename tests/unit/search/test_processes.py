"""The processes of a batch: they refuse another index, and none outlives the process that searches."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drag_ray.errors import SearchIndexError
from drag_ray.search.processes import IndexView, rank_chunk
from drag_ray.search.searcher import Searcher

pytestmark = pytest.mark.seconds

WriteIndex = Callable[..., Path]
SEARCH_AND_DIE = """
import os, signal, sys
from pathlib import Path
from drag_ray.search.searcher import Searcher

if __name__ == "__main__":
    searcher = Searcher(Path(sys.argv[1]))
    searcher.search_batch(["rotor"] * 1000, 3)
    print(*searcher._processes._pool._processes, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_batch_is_refused_when_the_index_has_been_built_anew(tmp_path: Path, write_index: WriteIndex) -> None:
    record = Searcher(write_index(tmp_path, ["the rotor", "fuel"])).record
    view = IndexView(write_index(tmp_path, ["fuel"]), "or", "words", record)
    with pytest.raises(SearchIndexError, match=r"built anew.*Open it again"):
        rank_chunk(view, ["rotor"], 3)


def test_the_processes_end_when_the_one_that_searches_is_killed(tmp_path: Path, write_index: WriteIndex) -> None:
    index_dir = write_index(tmp_path, ["the rotor", "fuel"])
    script = tmp_path / "search.py"
    script.write_text(SEARCH_AND_DIE)
    pids = tmp_path / "pids"  # a pipe would stay open as long as the processes
    with pids.open("w") as out:
        subprocess.run([sys.executable, str(script), str(index_dir)], stdout=out, check=False)
    started = [Path("/proc") / pid for pid in pids.read_text().split()]
    assert started
    deadline = time.monotonic() + 30
    while any(path.exists() for path in started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(path.exists() for path in started)
