"""The packages of a release hold everything that the program reads, and nothing else; built as by `make dist`."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from drag_ray import __version__

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE")
NAME = f"drag_ray-{__version__}"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both, from a copy of the sources: setuptools writes beside what it builds."""
    copy, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("packages")
    for name in SOURCES:
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "drag_ray", copy / "drag_ray", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*command, "--out-dir", str(folder), str(copy)], check=True, timeout=300)
    return folder


def list_package() -> set[str]:
    """All files of the package as the checkout has them."""
    paths = (path for path in (ROOT / "drag_ray").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


@pytest.mark.seconds
def test_the_wheel_holds_the_package_with_its_templates_and_nothing_else(packages: Path) -> None:
    with zipfile.ZipFile(packages / f"{NAME}-py3-none-any.whl") as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = HeaderParser().parsestr(wheel.read(f"{NAME}.dist-info/METADATA").decode())
        scripts = wheel.read(f"{NAME}.dist-info/entry_points.txt").decode()
    assert names == list_package()
    assert {"drag_ray/py.typed", "drag_ray/evaluate/report/report.html.j2"} <= names
    assert "drag-ray = drag_ray.cli.main:main" in scripts
    assert (metadata["Version"], metadata["License-Expression"]) == (__version__, "Apache-2.0")
    assert {"train", "serve", "ocr", "cpu", "gpu", "demo", "dev"} == set(metadata.get_all("Provides-Extra", []))


@pytest.mark.seconds
def test_the_source_archive_holds_what_the_wheel_is_built_from(packages: Path) -> None:
    with tarfile.open(packages / f"{NAME}.tar.gz") as archive:
        names = {member.name.removeprefix(f"{NAME}/") for member in archive.getmembers() if member.isfile()}
    assert list_package() | set(SOURCES) <= names
    assert not [name for name in names if name.startswith(("tests/", "runs/", "benchmarks/"))]
