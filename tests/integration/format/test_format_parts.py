"""A set that is too large for one process gives the same statistics and rows in parts, on Ray, as it does in one."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from factories import build_question, build_search, build_trajectory

from drag_ray import schemas
from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.errors import DataError
from drag_ray.format.rows import OF_TURNS
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.process import stage
from drag_ray.process.config import ProcessConfig
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Evidence, Trajectory

NUM_QUESTIONS = 40


def build_sample(number: int, sample_index: int) -> Trajectory:
    question = build_question(id=f"q{number}", question=f"Question {number}?", evidence=(Evidence("m.pdf", number + 1),))
    turns = [build_search(f"wide {number}"), build_search(f"exact {sample_index}", 1 + sample_index)]
    messages = json.loads(build_trajectory(*turns, question=question).messages)
    messages[3]["content"] = f"Page of question {number}. " * 1500  # so that few of them fill a part
    return build_trajectory(*turns, question=question, sample_index=sample_index, messages=json.dumps(messages))


@pytest.fixture(scope="module")
def trajectories_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of a question lie in different files."""
    folder = tmp_path_factory.mktemp("collected")
    for sample_index in range(3):
        records = [build_sample(number, sample_index) for number in range(NUM_QUESTIONS)]
        pq.write_table(schemas.to_table(records, schemas.TRAJECTORIES), folder / f"part-{sample_index}.parquet")
    return folder


def run_both(run_dir: Path, trajectories_dir: Path, **options: Any) -> dict[str, Any]:
    (run_dir / "collect").mkdir(parents=True)
    (run_dir / "collect" / "trajectories").symlink_to(trajectories_dir)
    config = RunConfig(run_dir=run_dir, process=ProcessConfig(**options))
    counts = {}
    for name in ("process", "format"):
        with StageFolder(run_dir / name, Identity(name, {}, {})) as folder:
            counts |= run_code(STAGES[name], config, folder)
    return counts


def read_rows(run_dir: Path, name: str, side: str) -> list[str]:
    return sorted(map(str, pq.read_table(run_dir / "format" / name / f"{side}.parquet").to_pylist()))


def test_parts_on_ray_give_what_one_process_gives(
    ray_address: str, trajectories_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_both(tmp_path / "whole", trajectories_dir)
    monkeypatch.setattr(stage, "PART_BYTES", 2**20)
    with connect(ClusterConfig(address=ray_address)):
        dealt = run_both(tmp_path / "dealt", trajectories_dir)
        with pytest.raises(DataError, match=r"process.top_k is 99.*depth of 10"):
            run_both(tmp_path / "refused", trajectories_dir, top_k=99)
    assert len(list((tmp_path / "whole" / "process" / "turns").iterdir())) == 1
    assert len(list((tmp_path / "dealt" / "process" / "turns").iterdir())) > 2
    assert not (tmp_path / "dealt" / "process" / "dealt").exists()
    assert dealt == pytest.approx(whole)
    for name in OF_TURNS:
        for side in ("train", "validation"):
            assert read_rows(tmp_path / "dealt", name, side) == read_rows(tmp_path / "whole", name, side)
