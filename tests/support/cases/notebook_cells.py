"""The notebook of the documentation: what it says, and its cells run on a run that has finished."""

import ast
import json
from pathlib import Path
from typing import Any

_PATH = Path(__file__).parents[3] / "docs" / "notebook.ipynb"
_WORKING = "engine"
"""The tag of cells that look at the identity of stages, or start an engine."""


def read_cells(kind: str) -> list[dict[str, Any]]:
    """The cells of a kind, `code` or `markdown`."""
    return [cell for cell in json.loads(_PATH.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def run_cells(*, with_engine: bool) -> list[Any]:
    """Run the cells one after the other in the working directory; what each would show, None where that is nothing."""
    shared: dict[str, Any] = {}
    cells = [cell for cell in read_cells("code") if with_engine or _WORKING not in cell["metadata"].get("tags", [])]
    return [_run_cell("".join(cell["source"]), shared) for cell in cells]


def _run_cell(source: str, shared: dict[str, Any]) -> Any:
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), shared)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), shared) if isinstance(last, ast.Expr) else None
