import json
from pathlib import Path

import pytest

from drag_ray.cli import main


def test_a_trajectories_file_goes_into_a_run_and_out_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = {"file": "a.pdf", "page_number": 2, "rank": 1}
    record = {
        "id": "t1",
        "question_id": "q1",
        "question": "Why?",
        "ground_truth": {"answers": ["so"], "answer_locations": [{"document": "a.pdf", "page": 2}], "category": ""},
        "iterations": [{"step": 1, "action": "search", "query": "why", "results": [page]}],
    }
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(record) + "\n")
    run_dir = str(tmp_path / "run")
    assert main(["import", str(source), "--run-dir", run_dir]) == 0
    assert main(["export", str(target), "--run-dir", run_dir]) == 0
    written = json.loads(target.read_text())
    assert (written["id"], written["best_gt_rank"]) == ("t1", 1)
    assert "1 trajectories, 0 lines set aside" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["import", "export"])
def test_a_missing_file_name_says_how_to_call(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--run-dir", "x"]) == 2
    assert f"drag-ray {command} trajectories.jsonl" in capsys.readouterr().err


def test_a_wrong_file_ends_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "none.jsonl")]) == 1
    assert "none.jsonl: no such file" in capsys.readouterr().err


def test_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in ("inspect", "import", "export"))
