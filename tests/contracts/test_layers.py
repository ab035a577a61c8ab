"""Layers of imports: a package imports from the layers above it, and within a layer from those to its left."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import drag_ray

ROOT = Path(drag_ray.__file__).parent
RECORDS = (
    *("__init__", "errors", "usage_reports", "extras", "messages", "types", "schemas", "removed", "config", "variants"),
    "storage",
)
LAYERS: tuple[tuple[str, ...], ...] = (
    RECORDS,
    ("stage_runs", "cluster"),
    ("search", "corpus", "examples"),
    ("engine",),
    ("tools", "agent", "baselines", "transcripts"),
    ("rollout",),
    # What is one published system's own (recipes) uses the agent and what process declares; both find it by name.
    (
        "index",
        "questions",
        "collect",
        "process",
        "recipes",
        "format",
        "finetune",
        "rl",
        "embed",
        "evaluate",
        "tune",
        "feedback",
        "serve",
    ),
    ("pipeline", "api", "cli"),
)
PLACES = {name: (layer, column) for layer, names in enumerate(LAYERS) for column, name in enumerate(names)}


def list_modules() -> dict[str, Path]:
    """Every module of the package by its dotted name without `drag_ray`."""
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


MODULES = list_modules()


def list_imports(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name.removeprefix("drag_ray.") in MODULES else node.module or "" for name in names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name.removeprefix("drag_ray.") for name in names if name.startswith("drag_ray."))


IMPORTS = {name: set(list_imports(path)) - {name} for name, path in MODULES.items()}


def may_import(importer: str, imported: str) -> bool:
    (layer, column), (its_layer, its_column) = (PLACES[name.partition(".")[0]] for name in (importer, imported))
    if layer == its_layer == 0:
        return True  # single files, of which the next test says that they make no circle
    return (its_layer, its_column) <= (layer, column) if layer == its_layer else its_layer < layer


def test_every_module_has_a_place_in_the_layers() -> None:
    assert {name.partition(".")[0] for name in MODULES} == set(PLACES)


def test_the_documentation_lists_the_layers() -> None:
    _, _, section = (ROOT.parent / "docs" / "concepts.md").read_text(encoding="utf-8").partition("## The layers")
    rows = re.findall(r"^\| \w+ \| (.*`.*) \|$", section, re.MULTILINE)
    listed = [tuple(re.findall(r"`(\w+)`", row)) for row in rows]
    assert listed == [("storage",), *LAYERS[1:]]


def test_imports_point_upwards_alone() -> None:
    climbs = [f"{name} -> {other}" for name, others in sorted(IMPORTS.items()) for other in others if not may_import(name, other)]
    assert not climbs


def test_no_files_import_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        raise AssertionError(f"a circle: {' -> '.join(reversed(error.args[1]))}") from None


def test_no_stage_imports_another_ones_stage() -> None:
    stages = {name for name in MODULES if name.endswith(".stage")}
    importers = {f"{name} -> {other}" for name, others in IMPORTS.items() for other in others & stages}
    assert importers <= {"api.run -> serve.stage", "pipeline.serve_app -> serve.stage"}
