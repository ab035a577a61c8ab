"""Test questions that a run asks again and again."""

from pathlib import Path
from typing import Any

from factories import build_question

from drag_ray import schemas
from drag_ray.evaluate.evaluation_folder import COMPARISON_NAME, QUESTIONS_NAME
from drag_ray.evaluate.stage import count_exposures
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import PREVIOUS_DIR_NAME, Identity


def evaluate(run_dir: Path, address: str, *questions: str, split: str = "test", finish: bool = True) -> Path:
    """An evaluation stage that asked these questions."""
    config: dict[str, Any] = {"evaluate": {"split": split}, "asked": questions}
    with StageFolder(run_dir / address, Identity(address, config, {})) as folder:
        table = schemas.to_table([build_question(id=text, question=text) for text in questions], schemas.QUESTIONS)
        artifacts.write_parquet(folder.path / QUESTIONS_NAME, table)
        artifacts.write_json(folder.path / COMPARISON_NAME, {})
        if finish:
            folder.finish({})
    return folder.path


def test_evaluations_of_the_same_test_questions_are_counted_wherever_in_the_run_they_are(tmp_path: Path) -> None:
    evaluate(tmp_path, "evaluate", "a", "b")
    own = evaluate(tmp_path, "evaluate", "a", "c")  # the first one is set aside
    assert len(list((tmp_path / PREVIOUS_DIR_NAME).iterdir())) == 1
    evaluate(tmp_path, "rounds/2/evaluate", "a")
    evaluate(tmp_path, "evaluate/again", "c")
    assert count_exposures(own, "evaluate", ["a", "c"]) == 3
    assert count_exposures(tmp_path / "rounds/2/evaluate", "rounds/2/evaluate", ["b"]) == 1


def test_validation_questions_other_questions_and_what_was_not_finished_do_not_count(tmp_path: Path) -> None:
    evaluate(tmp_path, "evaluate/validation", "a", split="validation")
    evaluate(tmp_path, "evaluate/other", "z")
    evaluate(tmp_path, "evaluate/killed", "a", finish=False)
    (evaluate(tmp_path, "evaluate/lost", "a") / QUESTIONS_NAME).unlink()
    assert count_exposures(tmp_path / "evaluate/now", "evaluate/now", ["a"]) == 0
