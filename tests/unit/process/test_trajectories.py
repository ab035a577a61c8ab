import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import build_answer, build_question, build_search, build_trajectory

from drag_ray import schemas
from drag_ray.errors import DataError
from drag_ray.process.trajectories import compute_states, load_trajectories
from drag_ray.types import StopReason, Trajectory


def write_trajectories(folder: Path, *records: Trajectory, name: str = "part-0.parquet") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(schemas.to_table(records, schemas.TRAJECTORIES), folder / name)
    return folder


def test_trajectories_of_several_files_are_read_together(tmp_path: Path) -> None:
    write_trajectories(tmp_path, build_trajectory(build_search(), sample_index=0), name="a.parquet")
    write_trajectories(tmp_path, build_trajectory(build_search(), sample_index=1), name="b.parquet")
    assert load_trajectories(tmp_path).frame["trajectory_id"].to_list() == ["q1-0", "q1-1"]


def test_unfit_records_are_left_out_and_counted_by_reason(tmp_path: Path) -> None:
    failed = build_trajectory(sample_index=1, error="engine died", stop_reason=StopReason.ERROR)
    test_question = build_trajectory(build_search(), question=build_question(id="q2", split="test"))
    unreadable = build_trajectory(build_search(), sample_index=2, messages="[{")
    no_reply = build_trajectory(build_search(), sample_index=3, messages=json.dumps([{"role": "user", "content": "x"}] * 4))
    write_trajectories(tmp_path, build_trajectory(build_search()), failed, test_question, unreadable, no_reply)
    loaded = load_trajectories(tmp_path)
    assert loaded.frame["trajectory_id"].to_list() == ["q1-0"]
    assert (loaded.num_failed, loaded.num_other_split, loaded.num_malformed, loaded.num_repeated) == (1, 1, 2, 0)


def test_a_failed_rollout_that_was_done_again_counts_once_as_a_success(tmp_path: Path) -> None:
    write_trajectories(tmp_path, build_trajectory(error="engine died"), name="a.parquet")
    write_trajectories(tmp_path, build_trajectory(build_search("again")), name="b.parquet")
    loaded = load_trajectories(tmp_path)
    assert loaded.frame["turns"].to_list()[0][0]["query"] == "again"
    assert (loaded.num_repeated, loaded.num_failed) == (1, 0)


def test_nothing_but_test_questions_is_refused_with_the_counts(tmp_path: Path) -> None:
    write_trajectories(tmp_path, build_trajectory(build_search(), question=build_question(split="test")))
    with pytest.raises(DataError, match=r"1 records .* 1 outside the split 'train'"):
        load_trajectories(tmp_path)


def test_an_empty_folder_says_which_job_to_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"jobs/collect\.py"):
        load_trajectories(tmp_path)


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_text("half a file")
    with pytest.raises(DataError, match=r"part-0\.parquet: not a readable Parquet"):
        load_trajectories(tmp_path)


def test_a_file_without_a_column_is_named_with_the_column(tmp_path: Path) -> None:
    table = schemas.to_table([build_trajectory(build_search())], schemas.TRAJECTORIES)
    pq.write_table(table.drop_columns(["turns"]), tmp_path / "part-0.parquet")
    with pytest.raises(DataError, match=r"part-0\.parquet.*'turns'"):
        load_trajectories(tmp_path)


def test_another_top_k_replaces_the_recorded_one_up_to_the_depth(tmp_path: Path) -> None:
    write_trajectories(tmp_path, build_trajectory(build_search()))
    assert load_trajectories(tmp_path, top_k=10).frame["top_k"].to_list() == [10]
    with pytest.raises(DataError, match=r"top_k is 11.*depth of 10"):
        load_trajectories(tmp_path, top_k=11)


def test_states_are_equal_exactly_where_the_prefixes_are(tmp_path: Path) -> None:
    one = build_trajectory(build_search("a"), build_search("b"))
    other = build_trajectory(build_search("c"), build_answer())
    first, second = (compute_states(record.messages, [2, 4]) for record in (one, other))
    assert first is not None
    assert second is not None
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_an_empty_file_is_no_trajectory(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([], schema=schemas.TRAJECTORIES), tmp_path / "part-0.parquet")
    with pytest.raises(DataError, match="0 records"):
        load_trajectories(tmp_path)
