"""Records -> the tables that the format stage reads, by way of the real process stage."""

from collections.abc import Callable
from pathlib import Path

import pytest
from factories import write_trajectories

from drag_ray.format.tables import ScoredPart, read_part
from drag_ray.process.config import ProcessConfig
from drag_ray.process.trajectories import read_records
from drag_ray.process.trajectory_parts import part_name, process_part
from drag_ray.types import Trajectory


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., ScoredPart]:
    def process_records(*records: Trajectory, **options) -> ScoredPart:
        path = tmp_path / "trajectories.parquet"
        write_trajectories(path, records)
        config = ProcessConfig(**options)
        process_part(read_records([path], config.read_depth), 0, config, tmp_path)
        return read_part(tmp_path, f"{part_name(0)}.parquet")

    return process_records
