"""drag_ray: teach a model to search your documents, from its own search trajectories.

    run = drag_ray.open_run("runs/mine", corpus={"documents": "my_documents/", "questions": "my_questions.jsonl"})
    run.index()
    run.open_searcher().search("rotor blade", top_k=3)

What a name needs is imported when it is first used. Types are in `__init__.pyi`.
"""

import importlib
from typing import Any

from drag_ray.usage_reports import turn_off_reports

__version__ = "0.1.0"

turn_off_reports()

_MODULES = {
    "Agent": "api.agent",
    "Report": "api.report",
    "Run": "api.run",
    "compare": "api.report",
    "errors": "errors",
    "load_reward_model": "api.run",
    "open_run": "api.run",
    "read_results": "api.frames",
    "read_trajectories": "api.frames",
    "score": "api.report",
    "show_messages": "messages",
}
"""Where in this package each public name is; a module is its own."""

__all__ = ["__version__", *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll] - the stub has them one by one


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
