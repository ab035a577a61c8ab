"""The journal on disk: nothing damaged is taken for whole, nothing is there twice, and token ids take few bytes."""

import errno
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from factories import asked_at, build_search, build_trajectory

from drag_ray import schemas
from drag_ray.errors import ArtifactError
from drag_ray.rollout import journal
from drag_ray.rollout.plan import list_successes


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    journal.begin_attempt(tmp_path)
    return tmp_path


def write(run_dir: Path, *ids: str, error: str = "") -> None:
    written = journal.Journal(run_dir, flush_s=1000)
    for rollout_id in ids:
        written.add(build_trajectory(build_search("rotor speed", 1), id=rollout_id, error=error))
    written.flush()


def read_ids(run_dir: Path) -> list[str]:
    return journal.read_trajectories(run_dir)["id"].to_pylist()


def flip_byte(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "folder"])
def test_a_damaged_file_is_set_aside(run_dir: Path, damage: str) -> None:
    write(run_dir, "a", "b")
    write(run_dir, "c")
    [victim] = [path for path in journal.list_files(run_dir, "trajectories") if pq.read_metadata(path).num_rows == 2]
    size = victim.stat().st_size
    if damage == "flipped":
        flip_byte(victim, size // 10)
        assert pq.read_metadata(victim).num_rows == 2  # its footer says nothing of it
    elif damage == "folder":
        victim.unlink()
        victim.mkdir()
    else:
        os.truncate(victim, size - 20 if damage == "truncated" else 0)
    journal.begin_attempt(run_dir)
    assert read_ids(run_dir) == ["c"]
    assert [path.name for path in journal.list_files(run_dir, "corrupt")] == [victim.name]


def test_whole_files_stay_where_they_are(run_dir: Path) -> None:
    write(run_dir, "a")
    write(run_dir, "b", error="RolloutError: poison")
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*.parquet")}
    journal.begin_attempt(run_dir)
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*.parquet")} == before
    assert len(before) == 2


def test_a_rollout_that_was_written_twice_is_kept_once(run_dir: Path) -> None:
    write(run_dir, "a", "b")
    os.utime(journal.list_files(run_dir, "trajectories")[0], ns=(1, 1))
    write(run_dir, "b", "c")
    write(run_dir, "a")
    journal.drop_repeated(run_dir)
    assert read_ids(run_dir) == ["a", "b", "c"]
    journal.begin_attempt(run_dir)
    assert read_ids(run_dir) == ["a", "b", "c"]


def test_failures_that_are_reset_are_forgotten_by_the_next_attempt_alone(run_dir: Path) -> None:
    write(run_dir, "a", error="RolloutError: no GPU")
    journal.reset_failures(run_dir)
    write(run_dir, "b", error="RolloutError: a late one")
    journal.begin_attempt(run_dir)
    assert journal.list_files(run_dir, "failures") == []
    write(run_dir, "a", error="RolloutError: poison")
    journal.begin_attempt(run_dir)
    assert len(journal.list_files(run_dir, "failures")) == 1


def test_half_a_file_of_a_killed_process_is_removed(run_dir: Path) -> None:
    (run_dir / "trajectories" / ".0123.parquet.x7f.unfinished").write_bytes(b"PAR1")
    journal.begin_attempt(run_dir)
    assert list((run_dir / "trajectories").iterdir()) == []


def test_marks_of_an_earlier_attempt_are_forgotten(run_dir: Path) -> None:
    assert journal.begin_chunk(run_dir, 3, "first") == []
    assert journal.begin_chunk(run_dir, 3, "second") == ["first"]
    assert journal.begin_chunk(run_dir, 3, "third") == ["first", "second"]
    journal.begin_rollout(run_dir, "q/default/0")
    journal.begin_attempt(run_dir)
    assert journal.begin_chunk(run_dir, 3, "fourth") == []
    assert not journal.end_rollout(run_dir, "q/default/0")


def test_what_has_finished_is_looked_for_in_the_files_of_its_engines_alone(run_dir: Path) -> None:
    dead, other = journal.Journal(run_dir, flush_s=0), journal.Journal(run_dir, flush_s=0)
    dead.add(build_trajectory(id="a"))
    other.add(build_trajectory(id="b"))
    [of_other] = [path for path in journal.list_files(run_dir, "trajectories") if journal.read_engine(path) == other.engine]
    of_other.write_bytes(b"")  # reading it would be an error
    assert [found.id for found in journal.read_finished(run_dir, ["a", "b", "c"], [dead.engine])] == ["a"]


def test_a_full_disk_is_an_error_that_drops_nothing(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    written = journal.Journal(run_dir, flush_s=1000)
    written.add(build_trajectory(id="a"))
    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", fail)
        with pytest.raises(ArtifactError, match=r"No space left on device.*Free some space"):
            written.flush()
    assert list((run_dir / "trajectories").iterdir()) == []
    written.flush()
    assert read_ids(run_dir) == ["a"]


def test_prompts_that_begin_alike_cost_a_fraction_of_a_byte_a_token(tmp_path: Path) -> None:
    prompt = [(place * 7919) % 49152 for place in range(900)]
    turns = [build_search(prompt_token_ids=tuple(prompt[: 400 + 100 * step]), completion_token_ids=(step,)) for step in range(6)]
    table = schemas.to_table([build_trajectory(*turns, id=str(number)) for number in range(20)], schemas.TRAJECTORIES)
    journal.begin_attempt(tmp_path)
    written = journal.Journal(tmp_path, flush_s=1000)
    for row in table.to_pylist():
        written.add(schemas.to_trajectory(row))
    written.flush()
    [path] = journal.list_files(tmp_path, "trajectories")
    assert schemas.read_table(path, schemas.TRAJECTORIES).equals(table)
    pq.write_table(table, tmp_path / "default.parquet", compression="zstd")
    assert measure_ids(path) < measure_ids(tmp_path / "default.parquet") / 2
    assert measure_ids(path) < 0.05


def measure_ids(path: Path) -> float:
    """Bytes on disk of a token id of a prompt."""
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    [ids] = [column for column in columns if "prompt_token_ids" in column.path_in_schema]
    return ids.total_compressed_size / ids.num_values


def test_what_came_of_rollouts_on_disk_is_what_came_of_them(run_dir: Path) -> None:
    searches = [build_search(f"q {rank}", rank) for rank in (1, 3, 5, None)]
    questions = {"unknown": {}, "third": asked_at(3), "none": asked_at(None)}
    trajectories = [build_trajectory(*searches, id=name, **fields) for name, fields in questions.items()]
    written = journal.Journal(run_dir, flush_s=1000)
    for trajectory in trajectories:
        written.add(trajectory)
    written.flush()
    expected = {trajectory.id: list_successes(trajectory) for trajectory in trajectories}
    assert journal.read_successes(run_dir) == expected
    assert {len(queries or ()) for queries in expected.values()} == {1, 2, 3}
