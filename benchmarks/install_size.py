"""Size of an installation on the disk: the search core alone, and the packages of `runtime_env/cpu.txt`.

    python benchmarks/install_size.py

Each goes into a fresh environment; the core has the newest versions that `pyproject.toml` allows, the rest those that are pinned.
It needs the package registry, some GB of space for as long as it runs, and minutes. Writes `results/install_size.json`.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from record import write_result

ROOT = Path(__file__).parents[1]
_TORCH = ("torch", "triton", "nvidia-", "cuda-")
"""How the names of PyTorch and of the libraries begin that come with it."""


def copy_source(folder: Path) -> Path:
    """Copy the files that the package is built from into a folder of its own: a build leaves files beside them."""
    shutil.copytree(ROOT / "drag_ray", folder / "drag_ray", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def install(wanted: Sequence[str], folder: Path) -> list[Distribution]:
    """Make an environment of what the arguments of `pip install` name; the packages in it.

    Raises:
        subprocess.CalledProcessError: one of them cannot be had.
    """
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    target = ["--python", str(folder / "bin" / "python"), "--link-mode", "copy"]
    subprocess.run([*uv, "pip", "install", "--quiet", *target, *wanted], check=True)
    [packages] = (folder / "lib").glob("python*/site-packages")
    return list(distributions(path=[str(packages)]))


def measure(found: list[Distribution]) -> dict[str, Any]:
    """Packages and megabytes, all of them and those of PyTorch."""
    sizes = {one.metadata["Name"].lower(): _measure_files(one) for one in found}
    return {
        "packages": len(sizes),
        "mb": round(sum(sizes.values()) / 1e6, 1),
        "torch_mb": round(sum(size for name, size in sizes.items() if name.startswith(_TORCH)) / 1e6, 1),
        "largest_mb": {name: round(size / 1e6, 1) for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:8]},
    }


def _measure_files(package: Distribution) -> int:
    paths = [Path(str(package.locate_file(file))) for file in package.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file())


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as source:
        pinned = ["--no-deps", "--require-hashes", "-r", str(ROOT / "runtime_env" / "cpu.txt")]
        results: dict[str, Any] = {}
        for name, wanted in {"core": [str(copy_source(Path(source)))], "setup": pinned}.items():
            with tempfile.TemporaryDirectory() as environment:
                results[name] = measure(install(wanted, Path(environment)))
            print(f"{name}: {results[name]}")
    write_result("install_size", results)


if __name__ == "__main__":
    main()
