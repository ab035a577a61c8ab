"""The devices of engines and trainers, and the questions of both sides."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import build_page, build_question
from small_index import finish_index

from drag_ray.errors import ConfigError, DataError, NotFiniteError, TrainError
from drag_ray.finetune.config import TrainJob
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.rl import learning, stage
from drag_ray.rl.config import RlSections
from drag_ray.rl.course import Draw
from drag_ray.rl.learning import LearningJob, run_learning
from drag_ray.rl.stage import Devices, find_rank, plan_devices, split_questions
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.types import Evidence, Page, Question

pytestmark = pytest.mark.seconds


def take(**options: Any) -> RlSections:
    return RunConfig.model_validate(options).take(RlSections)


@pytest.mark.parametrize(
    ("num_gpus", "options", "num_engines", "shares", "turns"),
    [
        (0, {}, 0, False, False),
        (1, {}, 0, True, True),
        (1, {"engine": {"gpu_memory_utilization": 0.5}, "rl": {"max_lag": 1}}, 0, True, False),
        (2, {}, 1, False, False),
        (8, {"finetune": {"num_workers": 2}, "rl": {"max_lag": 2}}, 6, False, False),
        (8, {"engine": {"tensor_parallel_size": 4}}, 1, False, False),
        (4, {"rollout": {"num_engines": 2}}, 2, False, False),
        (2, {"finetune": {"device": "cpu"}}, 0, False, False),
    ],
)
def test_trainers_have_gpus_of_their_own_where_one_is_left_for_engines(
    monkeypatch: pytest.MonkeyPatch, num_gpus: int, options: dict[str, Any], num_engines: int, shares: bool, turns: bool
) -> None:
    monkeypatch.setattr(stage, "count_gpus", lambda: num_gpus)
    monkeypatch.setattr(stage, "takes_gpus", lambda device: device != "cpu" and num_gpus > 0)
    devices = plan_devices(take(**options))
    assert (devices.rollout.num_engines, devices.shares_gpu, devices.takes_turns) == (num_engines, shares, turns)


@pytest.mark.parametrize(
    ("num_gpus", "options", "said"),
    [
        (1, {"rl": {"max_lag": 1}}, r"rl.max_lag 1: .* share 1 GPU.*gpu_memory_utilization 0.5 or less"),
        (2, {"engine": {"tensor_parallel_size": 2}}, r"tensor_parallel_size 2: the cluster has 2 GPU"),
        (2, {"finetune": {"num_workers": 2}}, r"num_workers 2 .*one trainer and an engine of one GPU alone"),
        (8, {"rollout": {"num_engines": 8}}, r"num_engines 8: beside the trainers there are GPUs for 7 of the 8"),
    ],
)
def test_what_there_are_no_gpus_for_is_refused_before_anything_waits_for_them(
    monkeypatch: pytest.MonkeyPatch, num_gpus: int, options: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(stage, "count_gpus", lambda: num_gpus)
    monkeypatch.setattr(stage, "takes_gpus", lambda device: True)
    with pytest.raises(ConfigError, match=said):
        plan_devices(take(**options))


@pytest.mark.parametrize(
    "option", [{"arguments": {"weight_decay": 0.1}}, {"part_learning_rates": {"language": 1e-5}}, {"parts": ["language"]}]
)
def test_an_option_that_training_would_not_read_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"finetune\.{next(iter(option))}: rl trains an adapter.*Leave it out"):
        take(finetune=option).check()


def test_an_adapter_that_engines_cannot_write_with_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"finetune\.lora: use_dora True: engines cannot write"):
        take(finetune={"lora": {"use_dora": True}}).check()


def test_a_trainer_that_is_told_to_end_hears_of_it_after_its_step_and_is_ended_where_that_takes_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heard, ended = list[bool](), list[str]()

    def fit(trainer: Any, *_: Any) -> None:
        time.sleep(0.3)  # a step that takes longer than it is waited for
        heard.append(any(tmp_path.glob(".stop-*")))

    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / ".nfs0001").touch()  # as file systems leave them
    monkeypatch.setattr(stage, "_END_S", 0.05)
    monkeypatch.setattr(stage, "find_seeing", lambda *_, **__: None)
    monkeypatch.setattr(stage, "size_workers", lambda *_, **__: SimpleNamespace(num_workers=1, num_cpus=1))
    monkeypatch.setattr(stage, "build_trainer", lambda *_: SimpleNamespace(abandon=lambda: ended.append("abandoned")))
    monkeypatch.setattr(stage, "fit", fit)
    sections, options = take(), SimpleNamespace(run_dir=tmp_path, image_dirs=())
    devices = Devices(sections.rollout, 1, trains_on_gpu=False)
    with pytest.raises(TrainError, match="a limit"), stage._learning(sections, options, devices):  # type: ignore[arg-type]
        raise TrainError("a limit")
    assert (heard, ended, list(tmp_path.glob(".stop-*"))) == ([True], ["abandoned"], [])


@pytest.mark.parametrize("counts", [{"finished": 3, "unfinished": 1}, {"finished": 0, "unfinished": 0}])
def test_a_step_whose_rollouts_have_not_all_ended_is_not_learned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, counts: dict[str, int]
) -> None:
    monkeypatch.setattr(stage, "run_plan", lambda *_: {"set_aside": 0, **counts})
    monkeypatch.setattr(stage, "_follow", lambda *_: None)
    draw = Draw([build_question()], "full", 4, 0, "rl step 2")
    options: Any = SimpleNamespace(image_dirs=())
    with pytest.raises(TrainError, match=rf"rl step 2: {counts['finished']} of 4 rollouts have finished.*Start the stage again"):
        stage._roll_out(options, take().rollout, lambda *_: iter(()), tmp_path, tmp_path, draw)


def test_a_process_that_gives_up_has_the_others_wait_no_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(job: LearningJob) -> None:
        raise NotFiniteError("a weight is not finite")

    monkeypatch.setattr(learning, "_learn", refuse)
    monkeypatch.setattr(learning, "resolve_model", str)
    train = TrainJob(take().training, "model", tmp_path, tmp_path, (), use_gpu=False, num_workers=2, num_threads=1)
    job = LearningJob(train, tmp_path, tmp_path / "stop", 1.0, 3, 1, yields_gpu=False)
    assert isinstance(run_learning({"job": job}), NotFiniteError)
    assert not learning._wait_for(tmp_path / "policies" / "00001", job.stop_path)


def test_an_adapter_has_the_lowest_rank_that_it_fits_into() -> None:
    assert [find_rank(rank) for rank in (1, 4, 8, 9, 64, 600)] == [1, 8, 8, 16, 64, 600]


def ask(page: Page, split: str) -> Question:
    evidence = (Evidence(page.file, page.page_number),)
    return build_question(id=f"{page.file}{page.page_number}", question=f"What of {evidence}?", evidence=evidence, split=split)


def test_questions_are_parted_as_the_format_stage_does_by_document_where_it_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pages = [build_page(file=f"{file}.pdf", page_number=number) for file in "abcd" for number in (1, 2)]
    questions = [ask(page, "test" if page.file == "d.pdf" and page.page_number == 1 else "train") for page in pages]
    finish_index(tmp_path, pages, questions)
    inputs = Inputs({"index": tmp_path / "index", "questions": None, "embed": None})
    sides = split_questions(take(format={"split_by": "document", "validation_fraction": 0.35}), inputs)
    files = {side: {question.evidence[0].file for question in asked} for side, asked in sides.items()}
    assert (len(sides["train"]), len(sides["validation"])) == (4, 2)
    assert not files["train"] & files["validation"]
    assert "d.pdf" not in files["train"] | files["validation"]  # what evaluation asks of
    assert not split_questions(take(rl={"validation_steps": 0}), inputs)["validation"]
    assert not caplog.messages
    assert not split_questions(take(format={"validation_fraction": 0}), inputs)["validation"]
    assert "the last policy is published" in caplog.text
    questions = [ask(page, "test" if page.page_number == 1 else "train") for page in pages]
    finish_index(tmp_path / "other", pages, questions)
    with pytest.raises(DataError, match="none of 4 training questions is left"):
        split_questions(take(format={"split_by": "document"}), Inputs({"index": tmp_path / "other" / "index", "questions": None}))
