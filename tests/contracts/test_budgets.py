"""The size of the package. Raising a number here is a decision: the commit that does it says why."""

from collections import Counter
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

import drag_ray
from drag_ray.pipeline.run_config import RunConfig

ROOT = Path(drag_ray.__file__).parent
LINES = {
    "agent": 2_670,
    "api": 1_260,
    "baselines": 1_910,
    "cli": 710,
    "cluster": 1_230,
    "collect": 190,
    "corpus": 4_220,
    "embed": 90,
    "engine": 3_870,
    "evaluate": 5_560,
    "examples": 260,
    "feedback": 1_490,
    "finetune": 6_040,
    "format": 2_620,
    "index": 1_010,
    "pipeline": 1_400,
    "process": 2_540,
    "questions": 1_990,
    "recipes": 1_170,
    "rl": 1_110,
    "rollout": 3_160,
    "search": 3_280,
    "serve": 5_390,
    "stage_runs": 780,
    "storage": 950,
    "tools": 2_390,
    "transcripts": 700,
    "tune": 590,
    "": 1_330,
}
"""Of each package, and of the modules at the top."""
FILES = 452
OPTIONS = 372
"""Of all sections, each counted once wherever it can be set."""
TEST_LINES = 56_080
ENTRIES = 20
"""Of a folder, so that it can be taken in at a glance; the packages themselves are the layers' (`test_layers.py`)."""


def test_no_package_grows_beyond_its_budget() -> None:
    counted = Counter[str]()
    for path in ROOT.rglob("*.py"):
        package = path.relative_to(ROOT).parts[0] if path.parent != ROOT else ""
        counted[package] += len(path.read_text(encoding="utf-8").splitlines())
    assert counted.keys() == LINES.keys()
    assert {package: lines for package, lines in counted.items() if lines > LINES[package]} == {}


def test_no_more_files_options_and_lines_of_tests_than_their_budgets() -> None:
    tests = Path(__file__).parents[1]
    num_test_lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in tests.rglob("*.py"))
    found = (sum(1 for _ in ROOT.rglob("*.py")), len(list_options(RunConfig)), num_test_lines)
    assert all(number <= allowed for number, allowed in zip(found, (FILES, OPTIONS, TEST_LINES), strict=True)), found


def test_a_folder_shows_few_entries() -> None:
    entries = (path for root in (ROOT, Path(__file__).parents[1]) for path in root.rglob("*") if "__pycache__" not in path.parts)
    shown = Counter(path.parent for path in entries)
    assert {str(folder): number for folder, number in shown.items() if number > ENTRIES and folder != ROOT} == {}


def list_options(config_type: type[BaseModel]) -> set[tuple[str, str]]:
    """The options of a section and of those in it, by the section's class."""
    options: set[tuple[str, str]] = set()
    for name, field in config_type.model_fields.items():
        sections = [part for part in list_types(field.annotation) if issubclass(part, BaseModel)]
        options |= {option for section in sections for option in list_options(section)} or {(config_type.__name__, name)}
    return options


def list_types(annotation: Any) -> list[type[Any]]:
    if isinstance(annotation, type):
        return [annotation]
    return [found for part in get_args(annotation) for found in list_types(part)]
