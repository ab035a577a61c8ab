from dataclasses import replace
from math import log2
from pathlib import Path

import pytest
from transcript_cases import BY_FIRST, FAILED, FOUND, MISSED, ORDERED, write

from drag_ray import schemas
from drag_ray.errors import ArtifactError, DataError
from drag_ray.transcripts.listing import Selection, choose, read_listing, read_trajectories


def read_ids(run_dir: Path, **selection: object) -> list[str]:
    return choose(read_listing(run_dir), Selection(**selection))["id"].to_list()  # type: ignore[arg-type]


def test_the_listing_says_what_each_rollout_came_to(run_dir: Path) -> None:
    listing = read_listing(run_dir).sort("id")
    columns = ["id", "outcome", "turns", "searches", "question_rank", "first_rank", "best_rank", "gain", "tokens"]
    assert listing.select(columns).rows() == [
        ("q1/default/0", "found", 4, 2, 7, 7, 2, pytest.approx(1 / log2(3) - 1 / log2(8)), 8),
        ("q1/default/1", "found", 1, 1, 1, 1, 1, 0.0, 2),
        ("q10/default/0", "errors", 0, 0, None, None, None, None, 0),
        ("q2/default/0", "not-found", 1, 1, None, None, None, 0.0, 2),
    ]


def test_of_a_list_in_windows_the_last_order_counts(tmp_path: Path) -> None:
    listing = read_listing(write(tmp_path / "some.parquet", ORDERED))
    columns = ["outcome", "turns", "searches", "question_rank", "first_rank", "best_rank"]
    assert listing.select(columns).rows() == [("found", 3, 2, 7, 3, 3)]


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        ({"outcome": "found"}, ["q1/default/0", "q1/default/1"]),
        ({"outcome": "not-found"}, ["q2/default/0"]),
        ({"outcome": "errors"}, ["q10/default/0"]),
        ({"question": "TAIL rotor"}, ["q2/default/0"]),
        ({"id": "q1"}, ["q1/default/0", "q1/default/1"]),
        ({"id": "q1/default/1"}, ["q1/default/1"]),
        ({"sort": "gain", "outcome": "found"}, ["q1/default/0", "q1/default/1"]),
        ({"sort": "rank"}, ["q1/default/1", "q1/default/0", "q10/default/0", "q2/default/0"]),
        ({"sort": "turns"}, ["q1/default/0", "q1/default/1", "q2/default/0", "q10/default/0"]),
        ({"sort": "seconds"}, ["q2/default/0", "q1/default/0", "q1/default/1", "q10/default/0"]),
    ],
)
def test_what_is_asked_for_is_chosen_in_its_order(run_dir: Path, selection: dict[str, str], ids: list[str]) -> None:
    assert read_ids(run_dir, **selection) == ids


def test_whole_trajectories_come_in_the_order_of_their_listing(run_dir: Path) -> None:
    chosen = choose(read_listing(run_dir), Selection(sort="rank"))
    written = schemas.to_table([BY_FIRST, FOUND, FAILED, MISSED], schemas.TRAJECTORIES).to_pylist()
    assert [schemas.to_row(trajectory) for _, trajectory in read_trajectories(chosen)] == written


def test_runs_stages_folders_and_files_are_understood(run_dir: Path) -> None:
    for path, count in (
        (run_dir, 4),
        (run_dir / "collect", 4),
        (run_dir / "collect" / "trajectories", 3),
        (run_dir / "collect" / "failures" / "3.parquet", 1),
    ):
        assert read_listing(path).height == count


def test_an_evaluation_names_its_policies(tmp_path: Path) -> None:
    for engine, policies in (("engine1", ("prompted", "base")), ("engine2", ("tuned",))):
        trajectories = [replace(MISSED, policy=policy) for policy in policies]
        write(tmp_path / "evaluate" / "rollouts" / engine / "trajectories" / "1.parquet", *trajectories)
    assert choose(read_listing(tmp_path / "evaluate"), Selection())["policy"].to_list() == ["base", "prompted", "tuned"]


def test_where_nothing_is_to_be_read_the_error_says_so(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        read_listing(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no trajectories there"):
        read_listing(run_dir / "index" / "page_images")
    with pytest.raises(DataError, match=r"pages\.parquet: no column 'id' in this trajectories table"):
        read_listing(run_dir / "index")
    with pytest.raises(DataError, match="its files hold no trajectory"):
        read_listing(write(tmp_path / "empty.parquet"))
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    with pytest.raises(ArtifactError, match=r"cut\.parquet: not what was written \(.*\)\. Remove it and collect again"):
        read_listing(tmp_path / "cut.parquet")


def test_no_match_names_what_was_asked_for(run_dir: Path) -> None:
    with pytest.raises(DataError, match=r"none of 4 trajectories is wanted \(outcome found, question 'zeppelin'"):
        choose(read_listing(run_dir), Selection("found", "zeppelin"))
