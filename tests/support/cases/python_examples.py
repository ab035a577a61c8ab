"""The examples in the docstrings of the Python API, run on a run that has finished."""

import doctest
import inspect
import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import drag_ray
from drag_ray.api.agent import Agent
from drag_ray.api.run import Run
from drag_ray.pipeline.stages import SERVE, STAGES

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_WORKING = (*STAGES, SERVE.name, "run_stage", "pipeline", "open_agent", "inspect_rows")
"""Methods of a run that look at the identity of its stages, start an engine, or need its model's tokenizer."""


def list_documented() -> list[Any]:
    """Names that the package offers, with their methods; that an agent is opened comes before what it is asked."""
    return [*list_reading(), *(getattr(Run, name) for name in _WORKING), *_list_methods(Agent)]


def list_reading() -> list[Any]:
    """Those of them that need no engine, and no run but for what its stages have left."""
    offered = [getattr(drag_ray, name) for name in drag_ray.__all__ if name not in ("__version__", "errors")]
    methods = [*_list_methods(Run), *_list_methods(drag_ray.Report)]
    return [item for item in (*offered, *methods) if item.__name__ not in _WORKING and item not in (Agent, drag_ray.Report)]


def _list_methods(kind: type) -> Iterator[Any]:
    """In the order in which they are written, those of the classes below it first."""
    for owner in reversed(kind.__mro__[:-1]):
        yield from (method for name, method in vars(owner).items() if inspect.isfunction(method) and not name.startswith("_"))


@contextmanager
def _silence() -> Generator[None]:
    """Examples show what is returned, and not what is said meanwhile."""
    logger = logging.getLogger("drag_ray")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def run_examples(items: Sequence[Any]) -> dict[str, str]:
    """Failures, by the place of the example. The examples share their names, and begin with `drag_ray` alone."""
    shared: dict[str, Any] = {"drag_ray": drag_ray}
    failed: dict[str, str] = {}
    for item in items:
        runner = doctest.DocTestRunner(optionflags=_FLAGS)
        said: list[str] = []
        test = doctest.DocTestParser().get_doctest(inspect.getdoc(item) or "", {}, item.__qualname__, None, None)
        test.globs = shared
        with _silence():
            runner.run(test, out=said.append, clear_globs=False)
        if runner.failures:
            failed[item.__qualname__] = "".join(said)
    return failed
