import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from factories import ask_for_answer, asked_at, build_answer, build_question, build_search, build_trajectory, write_trajectories

from drag_ray import schemas
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.errors import ArtifactError, DataError
from drag_ray.process.trajectories import (
    IMAGE_MARK,
    TrainingTrajectories,
    check_files,
    check_settings,
    read_records,
    select_trajectories,
)
from drag_ray.types import StopReason, Trajectory


def write_part(folder: Path, *records: Trajectory, name: str = "part-0.parquet") -> Path:
    write_trajectories(folder / name, records)
    return folder


def load_trajectories(folder: Path, top_k: int = 0) -> TrainingTrajectories:
    return select_trajectories(read_records(list(check_files(folder))), top_k)


def test_trajectories_of_several_files_are_read_together(tmp_path: Path) -> None:
    write_part(tmp_path, build_trajectory(build_search(), sample_index=0), name="a.parquet")
    write_part(tmp_path, build_trajectory(build_search(), sample_index=1), name="b.parquet")
    assert load_trajectories(tmp_path).frame["trajectory_id"].to_list() == ["q1-0", "q1-1"]


def test_unfit_records_are_left_out_and_counted_by_reason(tmp_path: Path) -> None:
    failed = build_trajectory(sample_index=1, error="engine died", stop_reason=StopReason.ERROR)
    test_question = build_trajectory(build_search(), question=build_question(id="q2", split="test"))
    unanswerable = build_trajectory(build_search(), question=build_question(id="q3", evidence=()))
    unreadable = build_trajectory(build_search(), sample_index=2, messages="[{")
    no_reply = build_trajectory(build_search(), sample_index=3, messages=json.dumps([{"role": "user", "content": "x"}] * 4))
    write_part(tmp_path, build_trajectory(build_search()), failed, test_question, unanswerable, unreadable, no_reply)
    loaded = load_trajectories(tmp_path)
    assert loaded.frame["trajectory_id"].to_list() == ["q1-0"]
    assert loaded.left_out == {
        "failed_rollouts": 1,
        "other_split": 1,
        "unanswerable": 1,
        "malformed": 2,
        "repeated_records": 0,
    }


def test_a_failed_rollout_that_was_done_again_counts_once_as_a_success(tmp_path: Path) -> None:
    write_part(tmp_path, build_trajectory(error="engine died"), name="a.parquet")
    write_part(tmp_path, build_trajectory(build_search("again")), name="b.parquet")
    loaded = load_trajectories(tmp_path)
    assert loaded.frame["turns"].to_list()[0][0]["query"] == "again"
    assert (loaded.left_out["repeated_records"], loaded.left_out["failed_rollouts"]) == (1, 0)


def test_an_empty_folder_says_which_job_to_run_and_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"jobs/collect\.py"):
        load_trajectories(tmp_path)
    (tmp_path / "part-0.parquet").write_text("half a file")
    with pytest.raises(
        ArtifactError, match=r"part-0\.parquet: not what was written \(.*\)\. Run: python jobs/collect\.py --verify"
    ):
        load_trajectories(tmp_path)
    table = schemas.to_table([build_trajectory(build_search())], schemas.TRAJECTORIES)
    pq.write_table(table.drop_columns(["turns"]), tmp_path / "part-0.parquet")
    with pytest.raises(DataError, match=r"part-0\.parquet.*'turns'"):
        load_trajectories(tmp_path)


def test_another_top_k_replaces_the_recorded_one_up_to_the_depth(tmp_path: Path) -> None:
    write_part(tmp_path, build_trajectory(build_search()))
    assert load_trajectories(tmp_path, top_k=10).frame["top_k"].to_list() == [10]
    with pytest.raises(DataError, match=r"top_k is 11.*depth of 10"):
        load_trajectories(tmp_path, top_k=11)


def test_malformed_conversations_spoil_no_others_and_images_keep_their_place(tmp_path: Path) -> None:
    records = [build_trajectory(build_search("a"), sample_index=index) for index in range(3)]
    broken = ["{}", "[{", '[{"role": "user"}]', '[{"role": "user", "content": [{"type": "audio"}]}]', "null"]
    records += [build_trajectory(build_search("a"), sample_index=3 + index, messages=text) for index, text in enumerate(broken)]
    loaded = load_trajectories(write_part(tmp_path, *records))
    assert (loaded.frame.height, loaded.left_out["malformed"]) == (3, len(broken))
    assert loaded.frame["messages"].to_list() == [json.loads(record.messages) for record in records[:3]]
    messages = json.loads(build_trajectory(build_search("a"), build_answer()).messages)
    messages[3]["content"] = [{"type": "text", "text": "Page:"}, {"type": "image", "image": "ab/c.png"}]
    record = build_trajectory(build_search("a"), build_answer(), messages=json.dumps(messages))
    (conversation,) = load_trajectories(write_part(tmp_path, record)).frame["messages"].to_list()
    assert conversation[3]["content"] == f"Page:{IMAGE_MARK}ab/c.png{IMAGE_MARK}"


@pytest.mark.parametrize(
    ("field", "label"), [("agent_fingerprint", "agent configurations"), ("index_fingerprint", "search indexes")]
)
def test_trajectories_of_two_prompts_or_corpora_are_refused(tmp_path: Path, field: str, label: str) -> None:
    changed: dict[str, Any] = {field: "else"}
    write_part(tmp_path, build_trajectory(build_search()), name="a.parquet")
    write_part(tmp_path, build_trajectory(build_search(), sample_index=1, **changed), name="b.parquet")
    with pytest.raises(DataError, match=rf"b\.parquet.*{label}.*a\.parquet.*allow-mixed"):
        check_settings(list(check_files(tmp_path)))


def test_replies_that_were_asked_for_the_answer_are_told_from_the_others(tmp_path: Path) -> None:
    record = build_trajectory(build_search("a"), build_search("b"))
    with_images = json.loads(ask_for_answer(record).messages)
    with_images[3]["content"] = [{"type": "image", "image": "a.png"}, {"type": "text", "text": with_images[3]["content"]}]
    tools = build_trajectory(build_search("a"), build_search("b"), sample_index=2, protocol="tools")
    asked = json.loads(tools.messages)
    asked[3]["content"] = f"[1] a.pdf#1\n\n{get_protocol('tools').final_request}"
    records = [
        *(record, build_trajectory(build_search("a"), build_search("b"), sample_index=1, messages=json.dumps(with_images))),
        replace(tools, messages=json.dumps(asked)),
    ]
    frame = load_trajectories(write_part(tmp_path, *records)).frame
    assert frame["are_last"].to_list() == [[False, False], [False, True], [False, True]]


def test_the_policys_own_come_first_and_whether_a_question_was_searched_is_known(tmp_path: Path) -> None:
    fields = [{"hinted": True}, {"baseline": "rm3"}, {"preset": "diverse"}, {"prompt_set": 1}, {"baseline": "hyde"}]
    records = [build_trajectory(build_search("a"), sample_index=index, **values) for index, values in enumerate(fields)]
    frame = load_trajectories(write_part(tmp_path, *records)).frame
    assert frame["sample_index"].to_list() == [3, 2, 4, 1, 0]
    assert frame["prompt_set"].to_list() == [1, 0, 0, 0, 0]
    fields = [{}, asked_at(None), asked_at(3)]
    records = [build_trajectory(build_search("a"), sample_index=index, **values) for index, values in enumerate(fields)]
    frame = load_trajectories(write_part(tmp_path, *records)).frame
    assert frame.select("knows_question", "question_rank").rows() == [(False, None), (True, None), (True, 3)]
