"""Records -> the tables of scored turns and trajectories."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import write_trajectories

from drag_ray.format.tables import ScoredPart
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records, select_trajectories
from drag_ray.process.turns import explode_turns, summarise_trajectories
from drag_ray.types import Trajectory


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., ScoredPart]:
    def process_records(*records: Trajectory, **options: Any) -> ScoredPart:
        path = write_trajectories(tmp_path / "part.parquet", records)
        config = ProcessConfig(**options)
        frame = select_trajectories(read_records([path]), config.top_k).frame
        turns = explode_turns(frame, config)
        return ScoredPart(turns, summarise_trajectories(frame, turns))

    return process_records
