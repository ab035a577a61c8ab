"""How a benchmark's result is kept: the numbers with the machine, the versions, the commit and the command that gave them."""

import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drag_ray import artifacts, provenance

RESULTS_DIR = Path(__file__).parent / "results"


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory and GPUs."""
    names = [
        line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    ]
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "python": platform.python_version(),
        "gpus": _list_gpus(),
    }


def _list_gpus() -> list[str]:
    if not shutil.which("nvidia-smi"):
        return []
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()


def make_folder(path: str) -> Path:
    """The folder that an argument names, made if it is not there."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_result(name: str, numbers: dict[str, Any]) -> Path:
    """Write `results/NAME.json` and print where it is."""
    path = RESULTS_DIR / f"{name}.json"
    record = {
        "benchmark": name,
        "command": "python " + " ".join(sys.argv),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": provenance.read_commit(),
        "machine": describe_machine(),
        "versions": provenance.read_versions(),
        "results": numbers,
    }
    artifacts.write_json(path, record)
    print(f"written: {path}")
    return path
