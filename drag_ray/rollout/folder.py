"""The names in the folder of a run of rollouts, and the logs of engines in it.

trajectories/    finished rollouts; the name of each file ends with the hash of its bytes
failures/        a row for each try of a rollout that failed, in files of the same kind
problems.jsonl   files that were set aside, and every rollout that ever failed with what became of it
corrupt/         files whose bytes are no longer those that were written; their rollouts run again
begun/           a file for each chunk that was begun in this attempt, with the names of the engines that did, a line each
running/         one empty file for each rollout that is being run; one that stays behind ran when its engine died
.attempt         the attempt that goes on, by which a node knows whether it sees this folder
reset_failures   an empty file that says that the next attempt forgets all failures
images/          what tools showed, and pictures that were made worse, by the hash of its bytes (see `corpus.image_store`)
logs/            what the engines print: hundreds of lines when they start, and more when Ray ends them
spending.jsonl   the tokens of each reply of an endpoint
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from drag_ray.storage.file_access import writing

TRAJECTORIES_DIR_NAME = "trajectories"
FAILURES_DIR_NAME = "failures"
PROBLEMS_NAME = "problems.jsonl"
CORRUPT_DIR_NAME = "corrupt"
BEGUN_DIR_NAME = "begun"
RUNNING_DIR_NAME = "running"
ATTEMPT_NAME = ".attempt"
RESET_NAME = "reset_failures"
LOGS_DIR_NAME = "logs"
IMAGES_DIR_NAME = "images"

OWN_FILES = (CORRUPT_DIR_NAME, BEGUN_DIR_NAME, RUNNING_DIR_NAME, RESET_NAME, LOGS_DIR_NAME)
"""What nobody reads but the run itself."""

_ERROR = re.compile(r"\b[\w.]*(?:Error|Exception): \S.*")
_REFERENCE = "See root cause above"
"""vLLM says so where its own process has told the cause."""


def log_to_file(run_dir: Path) -> None:
    """Send what this process and those that it starts print to a file of the run instead of the driver's console. Raises
    ArtifactError where the disk refuses the file."""
    path = run_dir / LOGS_DIR_NAME / f"engine-{os.getpid()}.log"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def read_log_changes(run_dir: Path) -> dict[Path, int]:
    """The times of the last changes of a run's engine logs, in nanoseconds."""
    return {path: path.stat().st_mtime_ns for path in (run_dir / LOGS_DIR_NAME).glob("*.log")}


def list_changed_logs(run_dir: Path, earlier: Mapping[Path, int]) -> list[Path]:
    """The logs that have changed since `read_log_changes` said `earlier`, the one that changed last at the end."""
    changes = read_log_changes(run_dir)
    return sorted((path for path, change in changes.items() if earlier.get(path) != change), key=changes.__getitem__)


def find_last_error(logs: Sequence[Path]) -> str:
    """The last error of the newest log that names one, such as `ValueError: no memory is left`; empty without one. `logs`: the
    newest at the end."""
    for path in reversed(logs):
        found = _ERROR.findall(path.read_text(encoding="utf-8", errors="replace"))
        causes = [line.strip() for line in found if _REFERENCE not in line]
        if causes:
            return causes[-1]
    return ""
