"""Collections over an index of a few pages."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray.cloudpickle
import scripted_engine

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout.folder import PROBLEMS_NAME
from drag_ray.rollout.options import WorkerOptions
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.storage import artifacts
from drag_ray.types import Page

ray.cloudpickle.register_pickle_by_value(scripted_engine)  # which the actors' processes cannot import


def build_options(folder: Path, texts: Sequence[str], **changes: Any) -> WorkerOptions:
    """Options of a run in `folder / "run"` on an index, which is made where there is none, of a page for each text."""
    if not (folder / "index").exists():
        pages = [Page("a.pdf", number, len(texts), text) for number, text in enumerate(texts, start=1)]
        artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
        build_index(folder / "pages.parquet", folder / "index", SearchConfig())
    defaults: dict[str, Any] = {
        "run_dir": folder / "run",
        "index_dir": folder / "index",
        "agent": AgentConfig(query_mode="rewrite"),
        "engine": EngineConfig(device="cpu"),
        "policies": {"": Policy("scripted")},
        "concurrent_rollouts": 4,
        "flush_s": 0,
    }
    return WorkerOptions(**defaults | changes)


def read_problems(run_dir: Path) -> list[dict[str, Any]]:
    """The problems of a collection: rollouts that it has set aside, or tried again."""
    return [json.loads(line) for line in (run_dir / PROBLEMS_NAME).read_text().splitlines()]
