"""A small real index for rollouts."""

import pytest

from drag_ray import schemas
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts
from drag_ray.types import Page


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> SearchEnvironment:
    folder = tmp_path_factory.mktemp("rollout")
    pages = [
        Page("a.pdf", 1, 1, "rotor rotor rotor blade"),
        Page("b.pdf", 2, 2, "rotor speed limit is 340 rpm in flight on the whole"),
        Page("c.pdf", 1, 1, "fuel"),
    ]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "index", SearchConfig())
    return SearchEnvironment(Searcher(folder / "index"), top_k=2, depth=10)
