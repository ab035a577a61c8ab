"""Pairs of drafts that the writer learns from, as the method dpo reads them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from factories import build_page
from small_index import finish_index

from drag_ray.cli.main import main
from drag_ray.engine.conversation import take_columns
from drag_ray.errors import DataError
from drag_ray.finetune.methods.dpo import PreferencePair
from drag_ray.finetune.rows.own_rows import write_own_rows
from drag_ray.questions.config import JOURNAL_NAME, REJECTED_NAME, ROWS_NAME, QuestionsConfig
from drag_ray.questions.drafts import Draft, Rewriting
from drag_ray.questions.pairs import write_pairs
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity

TEXT = "The pump is replaced every 200 hours."
FACT = Draft("f1", "fact", "a.md", 1, "How often is the pump replaced?", "every 200 hours", style="three key words")
USER = Draft("u1", "user", "a.md", 1, "When do I need another pump?", "after 200 hours")
DRAFTS = (
    FACT,
    replace(FACT, id="f2", question="What is on this page?", reason="self_reference"),
    replace(FACT, id="f3", question="", answer="", reason="unreadable"),
    USER,
    replace(USER, id="u2", reason="near_duplicate"),
)


def finish(run_dir: Path, drafts: Sequence[Draft] = DRAFTS, **options: Any) -> None:
    finish_index(run_dir, [build_page(file="a.md", page_number=1, text=TEXT)], [])
    settings = QuestionsConfig(**options).model_dump(mode="json")
    with StageFolder(run_dir / "questions", Identity("questions", {"questions": settings}, {})) as folder:
        for name, rows in (
            (JOURNAL_NAME, [replace(draft, reason="") if draft.reason == "near_duplicate" else draft for draft in drafts]),
            (REJECTED_NAME, [draft for draft in drafts if draft.reason]),
        ):
            artifacts.write_jsonl(folder.path / name, [asdict(draft) for draft in rows])
        artifacts.write_jsonl(folder.path / ROWS_NAME, [{"id": draft.id} for draft in drafts if not draft.reason])
        folder.finish({})


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_kept_draft_stands_beside_a_rejected_one_of_the_same_page_and_kind(tmp_path: Path) -> None:
    finish(tmp_path, examples=("who is on duty?",))
    assert write_pairs(tmp_path, tmp_path / "pairs.jsonl") == 1
    [row] = read(tmp_path / "pairs.jsonl")
    assert json.loads(row["chosen"]) == {"question": FACT.question, "answer": FACT.answer}
    assert json.loads(row["rejected"])["question"] == "What is on this page?"
    assert "who is on duty?" in row["prompt"][0]["content"]
    assert TEXT in row["prompt"][-1]["content"]
    assert "three key words" in row["prompt"][-1]["content"]
    assert row["category"] == "written_fact"


def test_a_draft_that_failed_before_it_was_written_again_is_none_to_learn(tmp_path: Path) -> None:
    failed = replace(FACT, question="", answer="", reason="failed")
    finish(tmp_path)
    artifacts.write_jsonl(tmp_path / "questions" / JOURNAL_NAME, [asdict(draft) for draft in (failed, *DRAFTS)])
    assert write_pairs(tmp_path, tmp_path / "pairs.jsonl") == 1
    assert json.loads(read(tmp_path / "pairs.jsonl")[0]["chosen"])["question"] == FACT.question


def test_the_request_has_the_style_of_the_draft_that_is_to_be_learned(tmp_path: Path) -> None:
    finish(tmp_path, [FACT, replace(DRAFTS[1], style="a nurse in a hurry")])
    write_pairs(tmp_path, tmp_path / "pairs.jsonl")
    asked = read(tmp_path / "pairs.jsonl")[0]["prompt"][-1]["content"]
    assert "three key words" in asked
    assert "a nurse" not in asked


def test_dpo_takes_the_pairs_as_rows_of_the_users_own(tmp_path: Path) -> None:
    finish(tmp_path)
    assert main(["pairs", str(tmp_path), str(tmp_path / "pairs.jsonl")]) == 0
    write_own_rows(str(tmp_path / "pairs.jsonl"), "", tmp_path / "out", pairs=True)
    [row] = read(tmp_path / "out" / "train.jsonl")
    pair = take_columns(row, PreferencePair, "a preference pair")
    assert [message["role"] for message in pair["prompt"]][-1] == "user"
    assert FACT.question in pair["chosen"][0]["content"][0]["text"]
    assert "What is on this page?" in pair["rejected"][0]["content"][0]["text"]


def test_drafts_of_a_kind_that_teaches_less_are_rejected_beside_what_was_kept_of_others(tmp_path: Path) -> None:
    rewritten = replace(FACT, rewritings=(Rewriting("fuzzy", "pump", FACT.question),), question="How often is it?")
    finish(tmp_path, [rewritten, *DRAFTS[1:]])
    assert write_pairs(tmp_path, tmp_path / "pairs.jsonl", worse={("kinds", "user")}) == 2
    rows = {row["category"]: row for row in read(tmp_path / "pairs.jsonl")}
    assert json.loads(rows["written_user"]["chosen"])["question"] == FACT.question
    assert json.loads(rows["written_user"]["rejected"])["question"] == USER.question


def test_kept_drafts_of_a_style_that_teaches_less_are_rejected_beside_kept_ones_of_another(tmp_path: Path) -> None:
    finish(tmp_path, [FACT, replace(FACT, id="f2", question="Pump, how often?", style="shouting"), USER])
    assert write_pairs(tmp_path, tmp_path / "pairs.jsonl", worse={("styles", "shouting")}) == 1
    [row] = read(tmp_path / "pairs.jsonl")
    assert json.loads(row["chosen"])["question"] == FACT.question
    assert json.loads(row["rejected"])["question"] == "Pump, how often?"


def test_questions_that_were_removed_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(tmp_path)
    (tmp_path / "questions" / ROWS_NAME).unlink()
    assert main(["pairs", str(tmp_path), str(tmp_path / "pairs.jsonl")]) == 1
    assert "questions.jsonl: is not there, though the stage has finished" in capsys.readouterr().err
    assert not (tmp_path / "pairs.jsonl").exists()


@pytest.mark.parametrize(
    ("drafts", "options", "message"),
    [((FACT, USER), {}, "questions.samples"), (DRAFTS, {"page_view": "image"}, "pictures")],
)
def test_a_run_that_makes_no_pair_is_told_and_nothing_is_written(
    tmp_path: Path, drafts: Sequence[Draft], options: dict[str, Any], message: str
) -> None:
    finish(tmp_path, drafts, **options)
    with pytest.raises(DataError, match=message):
        write_pairs(tmp_path, tmp_path / "pairs.jsonl")
    assert not (tmp_path / "pairs.jsonl").exists()


def test_a_stage_that_has_not_finished_is_named_before_real_questions_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finish_index(tmp_path, [build_page(file="a.md", page_number=1, text=TEXT)], [])
    command = ["pairs", str(tmp_path), str(tmp_path / "pairs.jsonl"), "--real", str(tmp_path / "none.jsonl")]
    assert main(command) == 1
    assert "python jobs/questions.py" in capsys.readouterr().err
