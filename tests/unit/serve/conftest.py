"""A small real index, and an endpoint that searches it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from serve_cases import TRAINED, Serve, Served
from small_index import open_index

from drag_ray.agent.record import write_record
from drag_ray.engine.generate import Request
from drag_ray.search.searcher import Searcher
from drag_ray.serve.search.retrieval import Retrieval
from drag_ray.types import Page


@pytest.fixture(scope="session")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    folder = tmp_path_factory.mktemp("serve")
    pages = [
        Page("a.pdf", 1, 1, "rotor rotor rotor blade"),
        Page("b.pdf", 2, 2, "The rotor turns. Its speed limit is 340 rpm in flight on the whole."),
        Page("c.pdf", 1, 1, "fuel and oil"),
    ]
    return open_index(folder, pages)


@pytest.fixture
def serve(searcher: Searcher, tmp_path: Path) -> Serve:
    """Serves with a script; an adapter that says how it is asked is called `tuned`."""
    (tmp_path / "tuned").mkdir()
    write_record(tmp_path / "tuned", TRAINED)

    def start(script: Callable[[Request], str], has_index: bool = True, retrieval: Retrieval | None = None) -> Served:
        return Served(searcher if has_index else None, tmp_path / "tuned", script, retrieval)

    return start
