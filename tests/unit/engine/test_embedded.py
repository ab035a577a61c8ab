"""The embedded model is unpacked by one process at a time, even where one of them is killed."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.errors import ConfigError

UNPACK = """
import fcntl, sys
from pathlib import Path
from drag_ray.engine.models import embedded

folder = Path(sys.argv[1])
sys.executable = str(folder / "unpack")
with (folder / ".lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    embedded._unpack(Path("model.gguf"), folder / "model", lock.fileno())
"""


def test_nobody_unpacks_beside_the_child_of_a_killed_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "end")
    (tmp_path / "unpack").write_text(f"#!/bin/sh\necho > {tmp_path}/begun\nread line < {tmp_path}/end\n")
    (tmp_path / "unpack").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", UNPACK, str(tmp_path)], env=environment)
    (tmp_path / "begun").read_text()
    process.kill()
    process.wait()
    with (tmp_path / ".lock").open("w") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (tmp_path / "end").write_text("\n")
        fcntl.flock(lock, fcntl.LOCK_EX)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drag_ray").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"drag_ray, where the model is unpacked to, cannot be written.*XDG_CACHE_HOME"):
        embedded_model_dir()
