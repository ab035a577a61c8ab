"""Questions that an evaluation asks."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from factories import build_question

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.corpus.verdicts import Verdict
from drag_ray.engine.config import EngineConfig
from drag_ray.errors import ArtifactError, ConfigError, DataError
from drag_ray.evaluate.asked_questions import draw_held_out, draw_weighed
from drag_ray.evaluate.config import EvaluateConfig, EvaluateSections
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage import artifacts
from drag_ray.storage.appended_lines import append_line
from drag_ray.storage.artifacts import Identity

VALIDATION = EvaluateConfig(split="validation")
QUESTIONS = [
    *(build_question(id=f"train{number}") for number in range(8)),
    build_question(id="train-unanswerable", evidence=()),
    *(build_question(id=f"test{number}", split="test") for number in range(3)),
]
SIDES = {"train0": "train", "train1": "validation", "train3": "validation", "train5": "validation", "train6": "withheld"}


def finish(folder: Path, inputs: dict[str, str] | None = None) -> Path:
    identity = Identity(folder.name, {}, inputs or {}, reads={name: name for name in inputs or {}})
    with StageFolder(folder, identity) as stage_folder:
        stage_folder.finish({})
    return folder


def write_sides(folder: Path, sides: dict[str, str]) -> None:
    table = pl.DataFrame({"question_id": list(sides), "side": list(sides.values())}).to_arrow()
    artifacts.write_parquet(folder / "questions.parquet", table)


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    artifacts.write_parquet(tmp_path / "index" / "questions.parquet", schemas.to_table(QUESTIONS, schemas.QUESTIONS))
    others = {"train-unanswerable": "validation", "test0": "validation", "elsewhere": "validation"}
    write_sides(tmp_path / "format", SIDES | others)
    folders = {name: tmp_path / name for name in ("index", "format")}
    return Inputs({**folders, "questions": None, "finetune": None})


def draw(settings: EvaluateConfig, inputs: Inputs) -> list[str]:
    return [question.id for question in draw_held_out(settings, inputs, 0, "find_page")]


def test_test_questions_are_asked_unless_others_are_wanted(inputs: Inputs) -> None:
    assert draw(EvaluateConfig(), inputs) == ["test0", "test1", "test2"]


def test_with_verdicts_those_are_drawn_from_that_a_person_has_kept(inputs: Inputs, tmp_path: Path) -> None:
    for place, verdict in enumerate(("keep", "drop", "keep")):
        asked = Verdict(f"test{place}", build_question().question, verdict)
        append_line(tmp_path / "verdicts.jsonl", asdict(asked))
    settings = EvaluateConfig(verdicts=str(tmp_path / "verdicts.jsonl"))
    assert draw(settings, inputs) == ["test0", "test2"]
    assert len(draw(settings.model_copy(update={"limit": 1}), inputs)) == 1
    sections = RunConfig(run_dir=tmp_path).take(EvaluateSections)
    assert replace(sections, evaluate=settings).list_sources() == {"evaluate.verdicts": tmp_path / "verdicts.jsonl"}
    with pytest.raises(ConfigError, match=r"evaluate\.verdicts: they are on test questions"):
        replace(sections, evaluate=settings.model_copy(update={"split": "validation"})).check()


def test_the_task_answer_asks_those_too_whose_answer_alone_is_known(inputs: Inputs) -> None:
    alone = [build_question(id=f"{split}-alone", evidence=(), answers=("340 rpm",), split=split) for split in ("train", "test")]
    table = schemas.to_table([*QUESTIONS, *alone], schemas.QUESTIONS)
    artifacts.write_parquet(inputs["index"] / "questions.parquet", table)
    write_sides(inputs["format"], {**SIDES, "train-alone": "validation"})
    settings = (EvaluateConfig(), VALIDATION)
    known = [draw(chosen, inputs) for chosen in settings]
    answered = [[question.id for question in draw_held_out(chosen, inputs, 0, "answer")] for chosen in settings]
    assert answered == [[*known[0], "test-alone"], [*known[1], "train-alone"]]


def test_validation_questions_are_train_questions_with_evidence_that_no_row_is_of(inputs: Inputs) -> None:
    assert draw(VALIDATION, inputs) == ["train1", "train3", "train5"]


def test_fewer_are_drawn_as_of_the_test_split(inputs: Inputs) -> None:
    drawn = draw(EvaluateConfig(split="validation", limit=2), inputs)
    assert len(drawn) == 2
    assert set(drawn) < {"train1", "train3", "train5"}


def test_validation_questions_need_the_format_stage(inputs: Inputs) -> None:
    with pytest.raises(ArtifactError, match=r"no format stage.*jobs/format.py"):
        draw(VALIDATION, Inputs({**inputs.folders, "format": None}))


def test_without_any_of_them_it_says_how_many_were_looked_for(inputs: Inputs) -> None:
    write_sides(inputs["format"], {"elsewhere": "validation"})
    with pytest.raises(DataError, match=r"of its 1 validation questions none is a train question.*format\.validation_fraction"):
        draw(VALIDATION, inputs)


def test_validation_questions_of_other_rows_may_have_been_trained_on(inputs: Inputs, tmp_path: Path) -> None:
    trained_from = {"format": artifacts.require_manifest(finish(inputs["format"])).outcome_fingerprint}
    write_sides(inputs["format"], SIDES)
    same = Inputs({**inputs.folders, "finetune": finish(tmp_path / "same", trained_from)})
    other = Inputs({**inputs.folders, "finetune": finish(tmp_path / "other", {"format": "other"})})
    assert draw(VALIDATION, same) == ["train1", "train3", "train5"]
    with pytest.raises(ConfigError, match=r"other was trained on the rows of format, got .* --reads format=ADDRESS"):
        draw(VALIDATION, other)
    assert draw(EvaluateConfig(), other) == ["test0", "test1", "test2"]


def weigh(inputs: Inputs, **settings: Any) -> list[str]:
    config = RunConfig(agent=AgentConfig(max_iterations=1), evaluate=EvaluateConfig(question_weights=(1, 2), **settings))
    return [question.id for question in draw_weighed(config.take(EvaluateSections), inputs)]


def test_weights_are_found_on_validation_questions_and_on_train_questions_while_nothing_is_trained(inputs: Inputs) -> None:
    assert weigh(inputs) == ["train1", "train3", "train5"]
    untrained = Inputs({**inputs.folders, "format": None})
    assert weigh(untrained) == [f"train{number}" for number in range(8)]


@pytest.mark.parametrize("settings", [{"adapters": ("other=runs/other/adapter",)}, {"models": {"b": EngineConfig(adapter="b")}}])
def test_weights_are_not_found_on_what_an_adapter_may_have_been_trained_on(inputs: Inputs, settings: Any) -> None:
    with pytest.raises(ArtifactError, match="no format stage"):
        weigh(Inputs({**inputs.folders, "format": None}), **settings)
