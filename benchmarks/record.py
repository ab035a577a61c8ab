"""Record of a benchmark's result: the numbers with the machine, the versions, the commit and the command that gave them."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drag_ray.stage_runs import provenance
from drag_ray.storage import artifacts

RESULTS_DIR = Path(__file__).parent / "results"


def make_folder(path: str) -> Path:
    """The folder that an argument names, made if it is not there."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_result(name: str, numbers: dict[str, Any], measured_here: bool = True, folder: Path = RESULTS_DIR) -> Path:
    """Write `results/NAME.json`, or into another folder, and print where it is.

    Args:
        measured_here: this machine gave the numbers; else they say themselves which machine did, set by set or row by row.
    """
    path = folder / f"{name}.json"
    record = {
        "benchmark": name,
        "command": "python " + " ".join(sys.argv),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": provenance.read_commit(),
        **({"machine": provenance.read_machine()} if measured_here else {}),
        "versions": provenance.read_versions(),
        "results": numbers,
    }
    artifacts.write_json(path, record)
    print(f"written: {path}")
    return path
