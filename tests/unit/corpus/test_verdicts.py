"""Verdicts of people on questions: which count, and what is asked then."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from factories import build_question

from drag_ray.corpus.verdicts import Verdict, keep_reviewed, read_verdicts
from drag_ray.errors import ConfigError, DataError
from drag_ray.storage.appended_lines import append_line
from drag_ray.types import Question

ASKED = "Where is the fuel kept?"


def ask(id: str) -> Question:
    return build_question(id=id, question=ASKED, answers=("in the wings",))


def write(path: Path, *verdicts: dict[str, Any]) -> Path:
    for verdict in verdicts:
        append_line(path, asdict(Verdict(**{"asked": ASKED, **verdict})))
    return path


def test_those_alone_are_asked_that_were_kept_and_an_edited_one_is_another_question(tmp_path: Path) -> None:
    said = [
        {"id": "a", "verdict": "keep"},
        {"id": "b", "verdict": "drop"},
        {"id": "c", "verdict": "edit", "question": "Where are the tanks?", "answer": "in the wing roots"},
        {"id": "d", "verdict": "edit", "question": "In which part is fuel?"},
    ]
    path = write(tmp_path / "verdicts.jsonl", *said)
    kept = keep_reviewed([ask(id) for id in "abcdef"], path)
    assert kept[0] == ask("a")
    assert [(question.question, question.answers) for question in kept[1:]] == [
        ("Where are the tanks?", ("in the wing roots",)),
        ("In which part is fuel?", ("in the wings",)),
    ]
    assert all(question.id[:2] in ("c-", "d-") and question.evidence == ask("c").evidence for question in kept[1:])


def test_the_last_verdict_counts_and_none_on_another_wording(tmp_path: Path) -> None:
    path = write(tmp_path / "verdicts.jsonl", {"id": "a", "verdict": "drop"}, {"id": "a", "verdict": "keep"})
    write(path, {"id": "b", "verdict": "keep", "asked": "What was asked before it was written anew?"})
    assert keep_reviewed([ask("a"), ask("b")], path) == [ask("a")]


def test_nothing_to_ask_is_said_with_the_remedy_and_a_line_that_is_no_verdict_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=r"verdicts\.jsonl': no such file. `drag-ray review RUN`"):
        keep_reviewed([ask("a")], tmp_path / "verdicts.jsonl")
    path = write(tmp_path / "verdicts.jsonl", {"id": "a", "verdict": "drop"})
    path.write_text(path.read_text() + '{"id": "b", "asked": "?", "verdict": "perhaps"}\n{"id": "c"')
    assert list(read_verdicts(path)) == ["a"]
    assert "line 2 is skipped" in caplog.text
    with pytest.raises(DataError, match=r"of 2 test questions 1 have a verdict, and none is kept.*drag-ray review RUN"):
        keep_reviewed([ask("a"), ask("b")], path)
