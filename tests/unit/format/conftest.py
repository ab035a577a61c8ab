"""Records -> the tables that the format stage reads, by way of the real process stage."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from drag_ray import schemas
from drag_ray.process.searches import explode_searches, summarise_trajectories
from drag_ray.process.trajectories import load_trajectories
from drag_ray.types import Trajectory

Tables = tuple[pl.DataFrame, pl.DataFrame]


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., Tables]:
    def process_records(*records: Trajectory) -> Tables:
        folder = tmp_path / "trajectories"
        folder.mkdir()
        pq.write_table(schemas.to_table(records, schemas.TRAJECTORIES), folder / "part.parquet")
        frame = load_trajectories(folder).frame
        searches = explode_searches(frame)
        return searches, summarise_trajectories(frame, searches)

    return process_records
