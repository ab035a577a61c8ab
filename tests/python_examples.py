"""The examples in the docstrings of the Python API, run on a run that has finished."""

import doctest
import importlib
import inspect
from typing import Any

import drag_ray
from drag_ray.api.agent import Agent
from drag_ray.api.run import Run

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def list_documented() -> list[Any]:
    """What the package offers, with the methods; that an agent is opened comes before what it is asked."""
    modules = [importlib.import_module(f"drag_ray.{name}") for name in dict.fromkeys(vars(drag_ray)["_MODULES"].values())]
    offered = [getattr(drag_ray, name) for name in drag_ray.__all__ if name != "__version__"]
    functions = [item for item in offered if inspect.isfunction(item)]
    methods = [
        method
        for kind in (Run, Agent, drag_ray.Report)
        for _, method in inspect.getmembers(kind, inspect.isfunction)
        if not method.__name__.startswith("_") and method.__module__ in {module.__name__ for module in modules}
    ]
    inherited = [method for method in vars(Run.__mro__[1]).values() if inspect.isfunction(method)]
    last = [Agent.roll_out, Agent.close, Run.close]
    own = [*functions, drag_ray.Run, *inherited, *methods]
    return [*(item for item in dict.fromkeys(own) if not item.__name__.startswith("_") and item not in last), *last]


def run_examples(items: list[Any], **names: Any) -> dict[str, str]:
    """What failed, by where the example is. The examples share their names, and begin with `names` and `drag_ray`."""
    shared = {"drag_ray": drag_ray, **names}
    failed: dict[str, str] = {}
    for item in items:
        runner = doctest.DocTestRunner(optionflags=_FLAGS)
        said: list[str] = []
        test = doctest.DocTestParser().get_doctest(inspect.getdoc(item) or "", {}, item.__qualname__, None, None)
        test.globs = shared
        runner.run(test, out=said.append, clear_globs=False)
        if runner.failures:
            failed[item.__qualname__] = "".join(said)
    return failed
