"""A small real index for rollouts."""

import pytest
from small_index import open_index

from drag_ray.agent.environment import SearchEnvironment
from drag_ray.types import Page


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> SearchEnvironment:
    pages = [
        Page("a.pdf", 1, 1, "rotor rotor rotor blade"),
        Page("b.pdf", 2, 2, "rotor speed limit is 340 rpm in flight on the whole"),
        Page("c.pdf", 1, 1, "fuel"),
    ]
    return SearchEnvironment(open_index(tmp_path_factory.mktemp("rollout"), pages), top_k=2, depth=10)
