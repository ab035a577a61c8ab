import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from factories import (
    EVIDENCE,
    asked_at,
    build_answer,
    build_question,
    build_search,
    build_trajectory,
    build_turn,
    change,
    write_trajectories,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odd_records import draw_lines
from small_index import open_index

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.cli.main import main
from drag_ray.corpus.problems import Problem
from drag_ray.errors import DataError
from drag_ray.process.exchange import export_trajectories, import_trajectories
from drag_ray.process.interchange import atif
from drag_ray.process.interchange_format import load_interchange
from drag_ray.stage_runs.address import Address
from drag_ray.types import CAPTION, ActionKind, Evidence, Hit, Page, StopReason, Trajectory

CONFIG = AgentConfig()
KEY = "3f/" + "3f" * 16 + ".jpg"


def build_rollouts() -> list[Trajectory]:
    """A rollout of each kind: found and answered, unreadable, with images and an example, failed, of a baseline that expands."""
    search = build_search("rotor\u2028speed", 2, reasoning="Because.", completion_logprobs=(-0.5, -2.0))
    answered = build_trajectory(
        search, build_turn(error=""), build_answer(citations=(EVIDENCE,)), id="q1/default/0", **asked_at(1)
    )
    functions = json.dumps(get_protocol("tools").list_functions())
    shown = build_trajectory(
        build_search("rotor", 1), build_search("again"), id="q1/default/1", protocol="tools", tools=functions
    )
    messages = json.loads(shown.messages)
    messages[3] = {"role": "tool", "content": [{"type": "text", "text": "Pages found:"}, {"type": "image", "image": KEY}]}
    example = [{"role": "user", "content": "Question: Why?"}, {"role": "assistant", "content": "<search>because</search>"}]
    messages[1:1] = example
    turns = tuple(replace(turn, num_prompt_messages=turn.num_prompt_messages + 2) for turn in shown.turns)
    shown = replace(shown, messages=json.dumps(messages[:-1]), turns=turns)  # the last search is answered by nothing
    failed = build_trajectory(id="q1/default/2", error="boom", stop_reason=StopReason.ERROR, started_at="of elsewhere")
    question = build_question(id="q 2/../ä", question="Wie schnell?", answers=())
    weights = {
        "query_mode": "expand",
        "question_weight": 0.5,
        "baseline": "rm3",
        "adapter": "a/b",
        "hinted": True,
        "prompt_set": 2,
    }
    called = build_trajectory(
        build_turn(action=ActionKind.TOOL, tool="grep", arguments='{"query": "5 %"}', tool_error="no file", tool_s=0.5),
        build_answer(),
        id="q1/default/3",
    )
    return [
        answered,
        shown,
        failed,
        called,
        build_trajectory(build_search(""), question=question, id="q 2/../ä/default/0", **weights),
        build_trajectory(build_search("[2, 1]", 2), build_search("[]", 2), id="q1/default/4", task="rerank", protocol="ranking"),
    ]


def as_written(trajectories: list[Trajectory]) -> list[Trajectory]:
    """As they come back from a table, whose numbers have fewer digits."""
    rows = schemas.to_table(trajectories, schemas.TRAJECTORIES).to_pylist()
    return [schemas.to_trajectory({**row, "messages": json.dumps(json.loads(row["messages"]))}) for row in rows]


def write(name: str, folder: Path, trajectories: list[Trajectory]) -> list[Path]:
    assert load_interchange(name).write(trajectories, folder) == len(trajectories)
    return sorted(folder.iterdir())


def read(name: str, path: Path) -> list[Trajectory | Problem]:
    reads = load_interchange(name).read
    assert reads
    return list(reads(path, CONFIG))


def test_what_is_written_is_read_again_as_it_was(tmp_path: Path) -> None:
    rollouts = as_written(build_rollouts())
    files = write("atif", tmp_path / "out", rollouts)
    assert [file.name for file in files[::4]] == [
        "000000-q1-default-0.json",
        "000004-q-2-..-default-0.json",
    ]
    again = [item for item in read("atif", tmp_path / "out") if isinstance(item, Trajectory)]
    assert as_written(again) == rollouts
    text = files[0].read_text().replace("ATIF-v1.8", "ATIF-v1.7")
    files[0].write_text(text.replace('"schema_version":"11"', '"schema_version":"10"'))  # of the same form
    assert read("atif", files[0]) == again[:1]


def test_atif_has_calls_reasons_tokens_and_copied_context_where_its_schema_says(tmp_path: Path) -> None:
    files = write("atif", tmp_path / "out", build_rollouts())
    first, second = (json.loads(file.read_text()) for file in files[:2])
    assert first["schema_version"] == "ATIF-v1.8"
    assert [step["source"] for step in first["steps"]] == ["system", "user", "agent", "agent", "agent"]
    search, unreadable, answer = first["steps"][2:]
    assert search["tool_calls"] == [
        {"tool_call_id": "call_1", "function_name": "search_documents", "arguments": {"query": "rotor\u2028speed"}}
    ]
    assert search["observation"]["results"] == [{"source_call_id": "call_1", "content": "Results of step 1: 10 pages."}]
    assert search["metrics"] == {
        **{"prompt_tokens": 3, "completion_tokens": 2},
        **{"prompt_token_ids": [1, 2, 3], "completion_token_ids": [4, 5], "logprobs": [-0.5, -2.0]},
    }
    assert (search["message"], search["reasoning_content"]) == ("", "Because.")
    assert unreadable["observation"]["results"] == [{"content": "Results of step 2: 0 pages."}]
    assert (unreadable["message"], answer["message"]) == ("I do not know.", "340 rpm")
    assert first["final_metrics"] == {"total_prompt_tokens": 9, "total_completion_tokens": 6, "total_steps": 5}
    assert [step.get("is_copied_context") for step in second["steps"]] == [None, None, True, None, None, None]
    assert [tool["function"]["name"] for tool in second["agent"]["tool_definitions"]] == ["search_documents", "provide_answer"]
    image = {"type": "image", "source": {"media_type": "image/jpeg", "path": KEY}}
    assert second["steps"][4]["observation"]["results"][0]["content"] == [{"type": "text", "text": "Pages found:"}, image]


def test_an_order_is_what_a_reply_says_and_no_search(tmp_path: Path) -> None:
    atif = json.loads(write("atif", tmp_path / "atif", build_rollouts())[5].read_text())
    replies = [step for step in atif["steps"] if step["source"] == "agent"]
    assert [(step["message"], "tool_calls" in step) for step in replies] == [("[2, 1]", False), ("[]", False)]


def test_ranks_and_rewards_are_computed_and_not_believed(tmp_path: Path) -> None:
    (file,) = write("atif", tmp_path / "out", [build_trajectory(build_search("x", 2), **asked_at(None))])
    first, *rest = file.read_text().split("\n")
    record = json.loads(first)
    own = record["extra"]["drag_ray"]
    own["evidence"] = [{"file": "other.pdf", "page_number": 7}]
    file.write_text("\n".join([json.dumps(record), *rest]))
    (trajectory,) = read("atif", file)
    assert isinstance(trajectory, Trajectory)
    assert (trajectory.turns[0].ranking.evidence_rank, trajectory.turns[0].ranking.rank_score) == (7, 0.0)
    assert trajectory.question_search.rank == 7


BROKEN = [
    ('"page_number"', '"page"', "page_number: Field required"),
    ('"rank":1,', '"rank":5,', "got page 1 at rank 5 in place 1, expected ranks and pages from 1"),
    ('"top_k":3', '"top_k":0', "top_k 0 and depth 10: expected 1 <= top_k <= depth"),
    ('"seed":0', '"seed":1e999', "got the number 1e999, expected a finite one"),
    ('"seed":0', f'"seed":{2**70}', "a value is not one that a table of trajectories holds"),
    ('"search_s":0.01', '"search_s":NaN', "got the number NaN, expected a finite one"),
    ('"schema_version":"11"', '"schema_version":"4"', "fields of version '4', this code reads '11'"),
    ('"partial_search":false,', "", "partial_search: Field required"),
    ('"hinted":false', '"hinted":false,"reward":9', "unknown drag_ray field 'reward' of a trajectory"),
    ('"finish_reason":"stop"', '"finish_reason":"\\ud800"', "a value is not one that a table of trajectories holds"),
    ("ATIF-v1.8", "ATIF-v2.0", "schema_version: got 'ATIF-v2.0'"),
    ('"drag_ray":', '"other":', "got no 'drag_ray' fields: it was not written by drag-ray export"),
    ('"tools":""', '"tools":"{}"', "tools: got '{}', expected the functions"),
    ('"action":"search"', '"action":"tool"', "got arguments '' of '', expected a JSON object"),
    ('"action":"search"', '"action":"delete"', "action: Input should be 'search', 'answer', 'tool' or 'invalid'"),
]


@pytest.mark.parametrize(("old", "new", "reason"), BROKEN)
def test_a_file_that_is_no_trajectory_is_set_aside_with_its_place(old: str, new: str, reason: str, tmp_path: Path) -> None:
    (file,) = write("atif", tmp_path / "out", [build_trajectory(build_search("x"))])
    text = "\n".join(json.dumps(json.loads(line), separators=(",", ":")) for line in file.read_text().splitlines())
    assert old in text
    file.write_text(text.replace(old, new))
    (problem,) = read("atif", tmp_path / "out")
    assert isinstance(problem, Problem)
    assert (problem.place, problem.kind) == (str(file), "broken_record")
    assert reason in problem.reason


def test_only_regular_files_of_a_bearable_size_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = write("atif", tmp_path / "out", [build_trajectory(build_search("x"))])
    (tmp_path / "out" / "000001-link.json").symlink_to(tmp_path / "secret.json")
    (tmp_path / "secret.json").write_text('{"key": "hunter2"}')
    os.mkfifo(tmp_path / "out" / "000002-pipe.json")
    (tmp_path / "out" / "README.md").write_text("# Mine")
    (tmp_path / "out" / ".DS_Store").write_text("")
    (tmp_path / "out" / "000003-copy.json").write_bytes(file.read_bytes())
    found, *problems = read("atif", tmp_path / "out")
    assert isinstance(found, Trajectory)
    kinds = [(Path(problem.place).name, problem.kind) for problem in problems if isinstance(problem, Problem)]
    unknown = [(name, "unknown_file") for name in ("000001-link.json", "000002-pipe.json", "README.md")]
    assert kinds == [*unknown[:2], ("000003-copy.json", "duplicate"), unknown[2]]
    assert not any("hunter2" in repr(problem) for problem in problems)
    monkeypatch.setattr(atif, "MAX_FILE_BYTES", 100)
    (problem,) = read("atif", file)
    assert isinstance(problem, Problem)
    assert problem.reason == "more than 100 bytes, which no trajectory has"


def test_a_run_goes_out_and_into_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "drag.jsonl"
    found = build_trajectory(build_search("x", 1), id="t1")
    load_interchange("drag").write([found, replace(found, id="t2")], source)
    first, second, out = str(tmp_path / "first"), str(tmp_path / "second"), str(tmp_path / "out")
    assert main(["import", str(source), "--run-dir", first, "--agent.query-mode", "rewrite"]) == 0
    assert main(["export", out, "--to", "atif", "--run-dir", first]) == 0
    assert main(["export", out, "--to", "atif", "--run-dir", first]) == 1
    assert "is there already, and a file for each trajectory needs a new or empty folder" in capsys.readouterr().err
    assert main(["import", out, "--from", "atif", "--run-dir", second, "--agent.query-mode", "rewrite"]) == 2
    assert main(["import", out, "--from", "atif", "--run-dir", second]) == 0
    assert "import: 2 trajectories, 0 set aside, in " in capsys.readouterr().out
    assert main(["export", str(tmp_path / "again.jsonl"), "--run-dir", second]) == 0
    assert main(["export", str(tmp_path / "once.jsonl"), "--run-dir", first]) == 0
    assert (tmp_path / "again.jsonl").read_text() == (tmp_path / "once.jsonl").read_text()


def test_nothing_is_left_where_an_export_fails(tmp_path: Path) -> None:
    broken = replace(build_trajectory(build_search("x")), messages="[]")
    with pytest.raises(DataError, match="its conversation has 0 messages and lacks replies"):
        load_interchange("atif").write([build_trajectory(), broken], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="no such file or folder"):
        import_trajectories(tmp_path / "none", tmp_path, Address("collect"), CONFIG, "atif")
    with pytest.raises(DataError):
        export_trajectories(tmp_path / "none", tmp_path / "out", "atif")


@pytest.mark.seconds
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_stands_in_a_file_it_is_taken_or_set_aside(tmp_path: Path, data: st.DataObject) -> None:
    (tmp_path / "out").mkdir(exist_ok=True)
    file = tmp_path / "out" / "one.json"
    if not (tmp_path / "whole").exists():
        write("atif", tmp_path / "whole", build_rollouts()[:2])
    lines = data.draw(st.sampled_from(sorted((tmp_path / "whole").iterdir()))).read_text(encoding="utf-8").split("\n")
    place = data.draw(st.integers(0, max(0, len(lines) - 2)))
    (lines[place],) = data.draw(draw_lines(json.loads(lines[place]), 1))
    file.write_text("\n".join(lines), encoding="utf-8")
    (item,) = read("atif", file)
    if isinstance(item, Trajectory):
        schemas.to_table([item], schemas.TRAJECTORIES)
        write("atif", tmp_path / "again", [item])
        shutil.rmtree(tmp_path / "again")
    else:
        assert item.place.startswith(str(file))


def test_predictions_of_a_policy_are_what_madqa_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered = build_trajectory(build_search("rotor rpm", 2), build_answer("340 rpm", citations=(EVIDENCE,)), policy="tuned")
    path = tmp_path / "evaluate" / "trajectories" / "scored.parquet"
    write_trajectories(path, [answered, change(answered, policy="base")])
    target = tmp_path / "predictions.jsonl"
    command = ["export", str(target), "--to", "madqa", "--run-dir", str(tmp_path)]
    assert main([*command, "--policy", "tuned"]) == 0
    assert json.loads(target.read_text()) == {
        "id": answered.question_id,
        "question": answered.question,
        "answer": "340 rpm",
        "citations": [{"document": EVIDENCE.file, "page": EVIDENCE.page_number}],
        "search_history": [{"query": "rotor rpm", "num_results": answered.top_k}],
        "iterations": 2,
    }
    assert main([*command, "--policy", "tunde"]) == 1
    assert "no rollout of policy 'tunde', expected one of base, tuned" in capsys.readouterr().err
    assert main([*command, "--policy"]) == 2
    assert "argument --policy: expected one argument" in capsys.readouterr().err
    with pytest.raises(DataError, match="several rollouts, expected one prediction a question"):
        load_interchange("madqa").write([answered, answered], target)
    with pytest.raises(DataError, match="nothing can be learned from them"):
        import_trajectories(target, tmp_path / "run", Address("collect"), CONFIG, "madqa")


def test_ordered_lists_go_out_with_what_the_candidates_show(tmp_path: Path) -> None:
    pages = [
        Page("red.png", 1, 1, "it is red", CAPTION, KEY),
        Page("text-1", 1, 1, "a rotor", "text"),
        Page("scan.png", 1, 1, "read off it", "ocr", KEY),
    ]
    open_index(tmp_path / "index", pages)
    given = tuple(Hit(page.file, 1, rank, 0.0) for rank, page in enumerate(pages, start=1))
    turned = tuple(replace(hit, rank=rank) for rank, hit in enumerate((given[1], given[2], given[0]), start=1))
    question = build_question(id="8:1", evidence=(Evidence("red.png", 1),), category="cirr")
    asked: dict[str, Any] = {"task": "rerank", "question_hits": given, "question_rank": 1}
    last = build_search("[2, 3, 1]", 3, hits=turned)
    ordered = build_trajectory(build_search("[3]", hits=given), last, question=question, **asked)
    unread = build_trajectory(build_turn(), question=replace(question, id="8:2", evidence=(EVIDENCE,)), **asked)
    write_trajectories(tmp_path / "trajectories" / "a.parquet", [ordered, unread])
    for path in (tmp_path / "lists.jsonl", tmp_path / "lists.parquet"):
        assert export_trajectories(tmp_path / "trajectories", path, "v_retrver", index_dir=tmp_path / "index") == 2
    rows = [json.loads(line) for line in (tmp_path / "lists.jsonl").read_text().splitlines()]
    assert rows == pq.read_table(tmp_path / "lists.parquet").to_pylist()
    red, text = (
        {"candidate_texts": "it is red", "candidate_images": "red.png"},
        {"candidate_texts": "a rotor", "candidate_images": ""},
    )
    scan = {"candidate_texts": "", "candidate_images": "scan.png"}
    assert [row["hit"] for row in rows] == [[text, scan, red], [red, text, scan]]
    assert [row["extra_info"]["ground_truth_position"] for row in rows] == [3, 0]
    assert (rows[0]["data_source"], rows[0]["response"]) == ("cirr", "<search>[2, 3, 1]</search>")
    with pytest.raises(DataError, match=r"expected a name that ends with \.jsonl or \.parquet"):
        export_trajectories(tmp_path / "trajectories", tmp_path / "lists.csv", "v_retrver", index_dir=tmp_path / "index")
    with pytest.raises(DataError, match="holds no rollouts"):
        import_trajectories(tmp_path / "lists.jsonl", tmp_path / "run", Address("collect"), CONFIG, "v_retrver")


@pytest.mark.parametrize("name", ["drag", "madqa"])
def test_an_order_of_candidates_goes_out_only_where_it_has_a_place(name: str, tmp_path: Path) -> None:
    ordered = build_trajectory(build_search("[2, 1]", 2), id="q1/greedy/0", task="rerank")
    write_trajectories(tmp_path / "trajectories" / "1.parquet", [ordered])
    with pytest.raises(DataError, match=rf"'q1/greedy/0' puts .* format {name} has no place; .* --to atif, v_retrver\."):
        export_trajectories(tmp_path / "trajectories", tmp_path / "out.jsonl", name)
    assert [path.name for path in tmp_path.iterdir()] == ["trajectories"]


def test_what_orders_nothing_or_twice_is_no_list(tmp_path: Path) -> None:
    write = load_interchange("v_retrver").write
    question = build_question()
    lists = [build_trajectory(question=question, task="rerank", sample_index=number) for number in range(2)]
    with pytest.raises(DataError, match="several rollouts"):
        write(lists, tmp_path / "a.jsonl", lambda page: Page(page.file, 1, 1, ""))
    with pytest.raises(DataError, match="orders nothing"):
        write([build_trajectory()], tmp_path / "a.jsonl", lambda page: Page(page.file, 1, 1, ""))
    assert list(tmp_path.iterdir()) == []
