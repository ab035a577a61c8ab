"""The source that a stage runs: its module and all that it imports of this package, found in the files themselves.

Nobody keeps a list of it, so none can be wrong. Modules that only say how work is reported, connected and kept are left out:
what a stage makes of its inputs does not depend on them, and to mend a message should not cost a collection.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_PACKAGE = Path(__file__).parent.name
LEFT_OUT = frozenset(
    f"{_PACKAGE}.{name}"
    for name in (
        *("errors", "messages", "provenance", "source_code", "usage_reports", "webpage"),  # what is said
        *("cluster", "cluster_token", "nodes", "tasks", "metrics", "rollout.progress", "rollout.live_line"),  # where it runs
        *("rollout.engine_logs", "rollout.detached", "rollout.keep"),
        *("address", "checksums", "damage", "stage_folder", "object_store", "stage_store", "inputs"),  # how finished work is kept
    )
)
"""Modules, and packages with all that is in them."""


def compute_code_fingerprint(module: str, of_user: Iterable[Path] = ()) -> str:
    """16 hexadecimal digits that stand for the source of a module and of all that it imports of this package.

    Args:
        module: its dotted name, as `drag_ray.collect.stage`.
        of_user: files of the user's that it runs too, wherever they are. What these import is not looked at.
    """
    digest = hashlib.sha256()
    for path in list_sources(module):
        digest.update(path.relative_to(_ROOT).as_posix().encode())
        digest.update(path.read_bytes())
    for path in of_user:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def list_sources(module: str) -> list[Path]:
    """The files of a module and of all that it imports, wherever the imports stand, with what they name, sorted."""
    found: set[str] = set()
    left = [module]
    while left:
        name = left.pop()
        if name not in found and not _is_left_out(name):
            found.add(name)
            path = _find_file(name)
            left += [*_list_imports(path), *(f"{name}.{variant}" for variant in _list_variants(path))]
    return sorted({path for name in found for path in (_find_file(name), *_list_templates(_find_file(name)))})


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or any(name.startswith(f"{package}.") for package in LEFT_OUT)


def _find_file(name: str) -> Path:
    path = _ROOT.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _list_nodes(path: Path) -> list[ast.AST]:
    """The imports and constants of a file, all that is asked of it."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(module) if isinstance(node, ast.Import | ast.ImportFrom | ast.Constant)]


@cache
def _list_imports(path: Path) -> frozenset[str]:
    """The modules of this package that a file imports; with each the packages that it lies in, which Python runs first."""
    found: set[str] = set()
    for node in _list_nodes(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            if name.partition(".")[0] == _PACKAGE and _find_file(name).is_file():
                parts = name.split(".")
                found.update(".".join(parts[:stop]) for stop in range(2, len(parts) + 1))
    return frozenset(found)


@cache
def _list_variants(path: Path) -> frozenset[str]:
    """The modules that a package of variants names in its `__init__` (see `variants`)."""
    named = _list_texts(path) if path.name == "__init__.py" else ()
    return frozenset(name for name in named if name.isidentifier() and path.with_name(f"{name}.py").is_file())


@cache
def _list_templates(path: Path) -> frozenset[Path]:
    """The files beside a module that it names."""
    named = [path.parent / text for text in _list_texts(path) if text.endswith((".j2", ".json"))]
    return frozenset(template for template in named if template.is_file())


def _list_texts(path: Path) -> Iterator[str]:
    for node in _list_nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
