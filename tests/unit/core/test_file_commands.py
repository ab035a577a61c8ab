import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from factories import build_search, build_trajectory, write_trajectories

from drag_ray.cli.main import main


def test_a_trajectories_file_goes_into_a_run_and_out_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = {"file": "a.pdf", "page_number": 2, "rank": 1}
    record = {
        "id": "t1",
        "question_id": "q1",
        "question": "Why?",
        "ground_truth": {"answers": ["so"], "answer_locations": [{"document": "a.pdf", "page": 2}], "category": ""},
        "iterations": [{"step": 1, "action": "search", "query": "why", "results": [page]}],
    }
    source, target = tmp_path / os.fsdecode(b"\xff.jsonl"), tmp_path / "out.jsonl"
    source.write_text(f"{json.dumps(record)}\n{json.dumps(record)}\n{'[' * 100_000}\n")
    run_dir = str(tmp_path / "run")
    assert main(["import", str(source), "--run-dir", run_dir, "--agent.query-mode", "rewrite"]) == 0
    assert main(["export", str(target), "--run-dir", run_dir]) == 0
    written = json.loads(target.read_text())
    assert (written["id"], written["best_gt_rank"]) == ("t1", 1)
    summary = "import: 1 trajectories, 2 set aside (broken_records 1, duplicates 1), in "
    assert capsys.readouterr().out.startswith(summary)


@pytest.mark.parametrize("command", ["import", "export"])
def test_a_missing_file_name_says_how_to_call(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--run-dir", "x"]) == 2
    assert f"drag-ray {command} trajectories.jsonl" in capsys.readouterr().err


def test_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in ("show", "inspect", "import", "export"))


def test_a_missing_file_is_named_before_a_tokenizer_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes seconds to import."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["inspect", str(tmp_path / "none.jsonl")]) == 1
    assert "none.jsonl: no such file" in capsys.readouterr().err


@pytest.fixture
def trajectories(tmp_path: Path) -> str:
    rollouts = [build_trajectory(build_search("rotor", rank), id=f"q1/default/{rank}") for rank in (1, 9)]
    path = tmp_path / "run" / "collect" / "trajectories" / "1.parquet"
    write_trajectories(path, rollouts)
    return str(tmp_path / "run")


def test_trajectories_are_listed_shown_and_written_as_a_page_and_missing_ones_end_with_a_message(
    trajectories: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["show", trajectories]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["outcome", "found", "not-found"]
    assert main(["show", trajectories, "--id", "q1/default/9"]) == 0
    assert "evidence at rank 9, not shown" in capsys.readouterr().out
    assert main(["show", trajectories, "--full", "--limit", "1"]) == 0
    assert "1 more" in capsys.readouterr().out
    assert main(["show", trajectories, "--found", "--html", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == f"1 transcripts written: {tmp_path / 'page.html'}\n"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert main(["show", f"{trajectories}/nowhere"]) == 1
    assert "nowhere: no such file or folder" in capsys.readouterr().err
    assert main(["show", trajectories, "--errors"]) == 1
    assert "none of 2 trajectories is wanted" in capsys.readouterr().err


@pytest.mark.seconds
def test_a_reader_that_has_seen_enough_is_no_error(trajectories: str) -> None:
    command = [sys.executable, "-m", "drag_ray.cli.main", "show", trajectories]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == (b"", 0)


def test_colours_are_for_who_wants_them(
    trajectories: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["show", trajectories])
    assert "\033[" not in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    main(["show", trajectories])
    assert "\033[" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["show", trajectories])
    assert "\033[" not in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--prompt-price=inf", "--prompt-price=nan", "--completion-price=-1"])
def test_a_price_is_a_finite_number(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "a", "b", option]) == 2
    name = option.partition("=")[0].removeprefix("--").replace("-", "_")
    refused = f"{name} of a million tokens: got {option.partition('=')[2]}"
    assert refused in capsys.readouterr().err
