"""The logs of engines, in files of the run: hundreds of lines when they start, and more when Ray ends them."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from drag_ray.rollout.folder import LOGS_DIR_NAME
from drag_ray.storage.file_access import writing

_ERROR = re.compile(r"\b[\w.]*(?:Error|Exception): \S.*")
_REFERENCE = "See root cause above"
"""vLLM says so where its own process has told the cause."""


def log_to_file(run_dir: Path) -> None:
    """Send what this process and those that it starts print to a file of the run instead of the driver's console.

    Raises:
        ArtifactError: the disk refuses the file.
    """
    path = run_dir / LOGS_DIR_NAME / f"engine-{os.getpid()}.log"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def read_changes(run_dir: Path) -> dict[Path, int]:
    """The times of the last changes of a run's engine logs, in nanoseconds."""
    return {path: path.stat().st_mtime_ns for path in (run_dir / LOGS_DIR_NAME).glob("*.log")}


def list_changed(run_dir: Path, earlier: Mapping[Path, int]) -> list[Path]:
    """The logs that have changed since `read_changes` said `earlier`, the one that changed last at the end."""
    changes = read_changes(run_dir)
    return sorted((path for path, change in changes.items() if earlier.get(path) != change), key=changes.__getitem__)


def find_last_error(logs: Sequence[Path]) -> str:
    """The last error of the newest log that names one, such as `ValueError: no memory is left`; empty without one.

    Args:
        logs: the newest at the end.
    """
    for path in reversed(logs):
        found = _ERROR.findall(path.read_text(encoding="utf-8", errors="replace"))
        causes = [line.strip() for line in found if _REFERENCE not in line]
        if causes:
            return causes[-1]
    return ""
