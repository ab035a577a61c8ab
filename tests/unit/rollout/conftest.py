"""A worker's options on an index of one page."""

from pathlib import Path

import pytest

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout import journal
from drag_ray.rollout.options import WorkerOptions
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.storage import artifacts
from drag_ray.types import Page


@pytest.fixture
def options(tmp_path: Path) -> WorkerOptions:
    artifacts.write_parquet(tmp_path / "pages.parquet", schemas.to_table([Page("a.pdf", 1, 1, "rotor")], schemas.PAGES))
    build_index(tmp_path / "pages.parquet", tmp_path / "index", SearchConfig())
    journal.begin_attempt(tmp_path / "run")
    return WorkerOptions(
        run_dir=tmp_path / "run",
        index_dir=tmp_path / "index",
        agent=AgentConfig(max_iterations=1),
        engine=EngineConfig(),
        policies={"": Policy("model")},
        concurrent_rollouts=4,
        flush_s=0,
    )
