import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import EVIDENCE, build_answer, build_search, build_trajectory, write_trajectories

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.corpus.problems import Problem
from drag_ray.errors import DataError
from drag_ray.process.exchange import export_trajectories, import_trajectories
from drag_ray.process.interchange.drag import read_trajectories, to_record
from drag_ray.process.trajectories import check_files, read_records, select_trajectories
from drag_ray.stage_runs.address import Address
from drag_ray.storage.artifacts import read_manifest
from drag_ray.types import ActionKind, Answer, Evidence, StopReason, Trajectory

# As the reference's collector writes it: rank of the first location only, pages in two spellings, a reply without a call.
RECORD = {
    "id": "traj_q7",
    "question_id": "q7",
    "question": "How fast may the rotor turn?",
    "ground_truth": {
        "answers": ["340 rpm", "5.7 Hz"],
        "answer_locations": [{"document": "manual.pdf", "page": 9}, "other.pdf:2"],
        "category": "helicopters",
    },
    "iterations": [
        {"step": 1, "reasoning": "Hm.", "action": "text_response", "query": None, "results": [], "raw_response": "Hm."},
        {
            "step": 2,
            "reasoning": "Limits are in manuals.",
            "action": "search",
            "query": "rotor rpm",
            "results": [
                {"file": "x.pdf", "page_number": 1, "total_pages": 3, "rank": 1},
                {"file": "other.pdf", "page_number": 2, "total_pages": 3, "rank": 2},
            ],
            "gt_found": False,
            "gt_rank": None,
            "rank_score": None,
            "answer": None,
            "citations": None,
            "raw_response": "",
        },
        {
            "step": 3,
            "reasoning": "",
            "action": "provide_answer",
            "query": None,
            "results": [],
            "answer": ["340 rpm"],
            "citations": [{"file": "other.pdf", "page": 2}],
            "raw_response": "",
        },
    ],
    "final_answer": ["340 rpm"],
    "success": True,
    "sampling_config": {"name": "high_temp", "temperature": 1.0},
    "model": "Qwen2.5-VL-3B-Instruct",
    "timestamp": "2026-01-01T00:00:00",
    "error": None,
}


@pytest.fixture
def read_one(tmp_path: Path) -> Callable[[dict], Trajectory]:
    def read(record: dict) -> Trajectory:
        (tmp_path / "one.jsonl").write_text(json.dumps(record))
        (trajectory,) = read_trajectories(tmp_path / "one.jsonl", AgentConfig(query_mode="rewrite"))
        assert isinstance(trajectory, Trajectory)
        return trajectory

    return read


def test_a_record_becomes_a_trajectory_with_a_conversation_of_this_agent(tmp_path: Path, read_one: Callable) -> None:
    trajectory = read_one(RECORD)
    assert [turn.action for turn in trajectory.turns] == [ActionKind.SEARCH, ActionKind.ANSWER]
    # All evidence counts: the second location is at rank 2 of 3.
    assert (trajectory.turns[0].ranking.evidence_rank, trajectory.turns[0].ranking.rank_score) == (2, pytest.approx(2 / 3))
    assert trajectory.evidence == (Evidence("manual.pdf", 9), Evidence("other.pdf", 2))
    assert trajectory.final_answer == Answer("340 rpm", (Evidence("other.pdf", 2),))
    assert (trajectory.stop_reason, trajectory.provenance.preset, trajectory.split) == (StopReason.ANSWER, "high_temp", "train")
    messages = json.loads(trajectory.messages)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert messages[2]["content"] == "<think>Limits are in manuals.</think>\n<search>rotor rpm</search>"
    assert "other.pdf#2" in messages[3]["content"]
    write_trajectories(tmp_path / "part.parquet", [trajectory])
    assert select_trajectories(read_records([tmp_path / "part.parquet"])).frame.height == 1


@pytest.mark.parametrize(
    ("change", "stop_reason", "error"),
    [
        ({"error": "Maximum iterations reached"}, StopReason.MAX_ITERATIONS, ""),
        ({"error": "connection refused"}, StopReason.ERROR, "connection refused"),
    ],
)
def test_running_out_of_turns_is_no_failure(change: dict, stop_reason: StopReason, error: str, read_one: Callable) -> None:
    trajectory = read_one({**RECORD, "iterations": RECORD["iterations"][:2], **change})
    assert (trajectory.stop_reason, trajectory.error) == (stop_reason, error)


def change(**fields: Any) -> str:
    """The record as a line, with another id, and with these fields."""
    return json.dumps({**RECORD, "id": "other", **fields})


def truth(location: Any) -> dict[str, Any]:
    return {"answers": [], "answer_locations": [location]}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (json.dumps(RECORD)[:-20], "not JSON"),
        (change(question=5), "column 'question': got 5 (int), expected text"),
        (change(iterations=None), "column 'iterations': got nothing, expected list"),
        (change(ground_truth={"answers": "abc", "answer_locations": []}), "column 'answers': got 'abc' (str), expected list"),
        (change(ground_truth={"answers": [], "answer_locations": [{"page": 1}]}), "column 'file': got nothing"),
        (change(ground_truth=truth({"file": "a", "page": -5})), "column 'answer_locations.page': got -5 (int), expected a whole"),
        (change(ground_truth=truth("a.pdf:-5")), "got '-5' (str), expected a whole number from 1"),
        (change(ground_truth=truth({"file": "a", "page": 2**40})), "got 1099511627776 (int), expected a whole number from 1"),
        (change(ground_truth=truth({"file": "a", "page": True})), "got True (bool), expected a whole number from 1"),
        (change(ground_truth=truth({"file": "a\ud800", "page": 1})), "column 'file': got 'a\\ud800', expected text without NULs"),
        (change(id="a\ud800"), "column 'id': got 'a\\ud800', expected text without NULs and halves of surrogate pairs"),
        (change(id="traj_q7"), "id 'traj_q7' comes again; the first one is kept"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"id": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ("[]", "got list [], expected a JSON object"),
    ],
)
def test_a_line_that_is_no_record_is_set_aside_with_its_place(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{json.dumps(RECORD)}\n{line}\n")
    first, second = read_trajectories(path, AgentConfig(query_mode="rewrite"))
    assert isinstance(first, Trajectory)
    assert isinstance(second, Problem)
    assert second.place.startswith(f"{path}:2")
    assert reason in second.reason


def test_texts_lose_what_no_table_holds_and_a_byte_order_mark_is_no_obstacle(tmp_path: Path, read_one: Callable) -> None:
    search = {**RECORD["iterations"][1], "query": "ro\ud800tor", "reasoning": "so\0"}
    trajectory = read_one({**RECORD, "question": "How\ud800?", "iterations": [search]})
    assert (trajectory.question, trajectory.turns[0].query, trajectory.turns[0].reasoning) == ("How?", "rotor", "so")
    schemas.to_table([trajectory], schemas.TRAJECTORIES)
    (tmp_path / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(RECORD).encode())
    assert [type(item) for item in read_trajectories(tmp_path / "bom.jsonl", AgentConfig(query_mode="rewrite"))] == [Trajectory]


def test_what_is_written_is_read_again_with_the_same_searches(read_one: Callable) -> None:
    original = build_trajectory(
        build_search("wide"), build_search("rotor", 2, reasoning="So."), build_answer(citations=(EVIDENCE,))
    )
    record = to_record(original)
    assert (record["gt_ever_found"], record["first_gt_iteration"], record["best_gt_rank"]) == (True, 2, 2)
    assert (record["total_iterations"], record["total_searches"], record["success"]) == (3, 2, True)
    again = read_one(json.loads(json.dumps(record)))
    assert [turn.ranking.evidence_rank for turn in again.turns] == [turn.ranking.evidence_rank for turn in original.turns]
    for name in ("step", "action", "query", "reasoning", "answer"):
        assert [getattr(turn, name) for turn in again.turns] == [getattr(turn, name) for turn in original.turns]
    assert to_record(again) == {**record, "iterations": to_record(again)["iterations"]}


def test_a_file_becomes_the_collected_trajectories_of_a_run_and_comes_out_again(tmp_path: Path) -> None:
    source = tmp_path / "trajectories.jsonl"
    second = {**RECORD, "id": "traj_q8", "question_id": "q8"}
    source.write_text(f"{json.dumps(RECORD)}\n\n{json.dumps(second)}\n{json.dumps(RECORD)[:100]}")
    collect_dir = tmp_path / "run" / "collect"
    counts = import_trajectories(source, collect_dir.parent, Address("collect"), AgentConfig(query_mode="rewrite"))
    assert counts == {"finished": 2, "set_aside": 1, "broken_records": 1}
    manifest = read_manifest(collect_dir)
    assert manifest is not None
    assert manifest.counts == counts
    problem = json.loads((collect_dir / "problems.jsonl").read_text())
    assert (problem["place"], problem["kind"]) == (f"{source}:4", "broken_record")
    assert problem["reason"].startswith("not JSON")
    assert [size.num_records for size in check_files(collect_dir / "trajectories").values()] == [2]
    assert export_trajectories(collect_dir / "trajectories", tmp_path / "out.jsonl") == 2
    assert [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == ["traj_q7", "traj_q8"]


def test_a_file_without_any_record_is_refused_with_examples(tmp_path: Path) -> None:
    source = tmp_path / "trajectories.jsonl"
    source.write_text('{"messages": []}\n')
    with pytest.raises(DataError, match=r"not one trajectory.*\n.*trajectories\.jsonl:1: column 'ground_truth': got nothing"):
        import_trajectories(source, tmp_path, Address("collect"), AgentConfig(query_mode="rewrite"))
    assert read_manifest(tmp_path / "collect") is None
    with pytest.raises(DataError, match="no such file"):
        import_trajectories(tmp_path / "none.jsonl", tmp_path, Address("collect"), AgentConfig(query_mode="rewrite"))


def test_the_form_that_the_tutorial_prints_is_read_too(tmp_path: Path) -> None:
    found = [{"file": "specs/ch47_manual.pdf", "page_number": 42}]
    search = {"step": 1, "reasoning": "Speed.", "action": "search", "query": "CH-47 maximum speed knots", "results": found}
    printed = {
        "id": "traj_q123",
        "question": "What is the maximum speed of the CH-47?",
        "ground_truth": {"file": "specs/ch47_manual.pdf", "page": 42, "answers": ["170 knots"]},
        "iterations": [{**search, "gt_found": True, "gt_rank": 1, "rank_score": 1.0}],
        "best_rank_score": 1.0,
        "gt_ever_found": True,
    }
    wrong = {**printed, "id": "traj_q124", "ground_truth": {"file": "a.pdf", "page": 0, "answers": []}}
    path = tmp_path / "trajectories.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in (printed, wrong)))
    first, second = read_trajectories(path, AgentConfig(query_mode="rewrite"))
    assert isinstance(first, Trajectory)
    assert (first.question_id, first.evidence) == ("traj_q123", (Evidence("specs/ch47_manual.pdf", 42),))
    assert (first.turns[0].ranking.evidence_rank, first.stop_reason) == (1, StopReason.MAX_ITERATIONS)
    assert isinstance(second, Problem)
    assert "ground_truth.page" in second.reason
