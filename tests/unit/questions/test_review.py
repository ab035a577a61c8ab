"""Questions that a person is to look at, and the agreement of filters and verdicts."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from factories import build_page
from small_index import write_index

from drag_ray import schemas
from drag_ray.corpus.verdicts import Verdict
from drag_ray.errors import DataError
from drag_ray.questions.drafts import Draft, Reason
from drag_ray.questions.review import ReviewItem, format_agreement, list_items
from drag_ray.storage.artifacts import write_jsonl, write_parquet
from drag_ray.types import Question

DRAFT = Draft("kept", "fact", "a.pdf", 3, "Where is the fuel kept?", "in the wings")
LEFT_OUT: tuple[Reason, ...] = ("copied", "copied", "copied", "unanswerable", "near_duplicate", "unreadable")


def write_run(run_dir: Path, own: tuple[Question, ...] = ()) -> tuple[Path, Path]:
    """A run with two test questions and one of training that a model has written, and what filters have left out."""
    write_index(run_dir / "index", [build_page()], own)
    written = [replace(DRAFT.to_question(), id=f"kept{number}", split="train" if number == 2 else "test") for number in range(3)]
    (run_dir / "questions").mkdir()
    write_parquet(run_dir / "questions" / "questions.parquet", schemas.to_table(written, schemas.QUESTIONS))
    drafts = [replace(DRAFT, id=f"draft{number}", reason=reason) for number, reason in enumerate(LEFT_OUT)]
    write_jsonl(run_dir / "questions" / "rejected.jsonl", [asdict(draft) for draft in drafts])
    return run_dir / "index", run_dir / "questions"


def test_test_questions_are_looked_at_with_some_of_each_filter_that_a_question_alone_lets_judge(tmp_path: Path) -> None:
    folders = write_run(tmp_path)
    items = list_items(*folders, num_left_out=2)
    asked = {item.question.id for item in items if not item.left_out}
    assert asked == {"kept0", "kept1"}
    assert sorted(item.left_out for item in items if item.left_out) == ["copied", "unanswerable"]
    assert len(list_items(*folders, num_left_out=100)) == 2 + 4
    assert [item.left_out for item in list_items(*folders, num_left_out=0)] == ["", ""]
    assert items == list_items(*folders, num_left_out=2)


def test_questions_of_the_user_are_looked_at_without_what_a_model_has_written(tmp_path: Path) -> None:
    own = replace(DRAFT.to_question(), id="own", split="test")
    items = list_items(*write_run(tmp_path, (own,)), num_left_out=100)
    assert [(item.question.id, item.left_out) for item in items] == [("own", "")]


def test_no_test_question_is_said(tmp_path: Path) -> None:
    index_dir, _ = write_run(tmp_path)
    with pytest.raises(DataError, match="no test question with evidence to look at"):
        list_items(index_dir, None, 0)


def test_filters_and_a_person_agree_on_what_both_keep_and_what_both_leave_out() -> None:
    question = DRAFT.to_question()
    reasons: tuple[Reason, ...] = ("", "", "", "copied", "copied", "known")
    items = [ReviewItem(replace(question, id=str(number)), reason) for number, reason in enumerate(reasons)]
    said = ("keep", "edit", "drop", "drop", "keep")
    verdicts = {str(number): Verdict(str(number), question.question, verdict) for number, verdict in enumerate(said)}
    lines = format_agreement(items, verdicts).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["keep", "edit", "drop"],
        ["asked", "1", "1", "1"],
        ["left", "out", "as", "copied", "1", "0", "1"],
    ]
    assert lines[3:] == ["5 of 6 seen; person and filters agree on 3 (60%)"]
    assert format_agreement(items, {}) == "none of 6 questions has a verdict"
