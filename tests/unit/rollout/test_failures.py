"""Failures of rollouts: they are tried again, found out, set aside in the end, and reported."""

import asyncio
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from factories import build_question, build_trajectory

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Generation, ImageSource, Request
from drag_ray.errors import EngineDiedError, RolloutError, TooManyFailuresError
from drag_ray.rollout import journal
from drag_ray.rollout.failures import (
    ENGINE_DIED,
    Failures,
    check_failure_rate,
    count_errors,
    find_exhausted,
    read_failures,
    write_problems,
)
from drag_ray.rollout.folder import FAILURES_DIR_NAME, PROBLEMS_NAME
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan, cut_chunks
from drag_ray.rollout.worker import RolloutWorker

QUESTIONS = [build_question(id=f"q{number}", question=f"question {number}?") for number in range(4)]


class FailingEngine:
    """Replies, except to question 2, where each call takes the next of `faults`; afterwards it replies there too."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.calls = Counter[str]()
        self.images: ImageSource | None = None

    async def __call__(self, request: Request) -> Generation:
        question = request.messages[-1]["content"].removeprefix("Question: ")
        self.calls[question] += 1
        await asyncio.sleep(0.01 if question == "question 3?" else 0)
        if question == "question 2?" and self.faults:
            raise self.faults.pop(0)
        return Generation("<search>rotor</search>", (), (), "stop")


@pytest.fixture
def options(options: WorkerOptions) -> WorkerOptions:
    return dataclasses.replace(options, flush_s=1000, max_tries=3)


def run_chunk(options: WorkerOptions, engine: FailingEngine) -> list[dict]:
    """The summaries of a chunk with a rollout of each question, run by a new worker."""

    def build_engine(config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]) -> FailingEngine:
        engine.images = images
        return engine

    worker = RolloutWorker(dataclasses.replace(options, build_engine=build_engine))
    [chunk] = cut_chunks(build_plan(QUESTIONS, ("default",), 1, run_seed=0), 4)

    async def run() -> list[dict]:
        return (await worker(chunk)).to_pylist()

    return asyncio.run(run())


def read_finished_questions(options: WorkerOptions) -> list[str]:
    return journal.read_trajectories(options.run_dir)["question_id"].to_pylist()


def read_problems(options: WorkerOptions) -> list[dict]:
    write_problems(options.run_dir, options.max_tries)
    return [json.loads(line) for line in (options.run_dir / PROBLEMS_NAME).read_text().splitlines()]


def test_a_rollout_that_failed_is_tried_again_at_once(options: WorkerOptions) -> None:
    engine = FailingEngine(RolloutError("slow down"), RolloutError("slow down"))
    [summary] = run_chunk(options, engine)
    assert summary["errors"] == []
    assert engine.calls == {"question 0?": 1, "question 1?": 1, "question 2?": 3, "question 3?": 1}
    assert read_finished_questions(options) == ["q0", "q1", "q2", "q3"]
    assert read_problems(options) == [
        {"place": "rollout q2/default/0", "tries": 2, "reason": "RolloutError: slow down; finished in a later try"}
    ]


def test_a_poisonous_question_is_set_aside_and_holds_up_nothing(options: WorkerOptions) -> None:
    engine = FailingEngine(*[RolloutError("poison")] * 9)
    [summary] = run_chunk(options, engine)
    assert summary["errors"] == ["RolloutError: poison"]
    assert engine.calls["question 2?"] == 3
    assert read_finished_questions(options) == ["q0", "q1", "q3"]
    assert find_exhausted(read_failures(options.run_dir), 3) == {"q2/default/0"}
    [problem] = read_problems(options)
    assert (problem["place"], problem["tries"]) == ("rollout q2/default/0", 3)
    assert problem["reason"].startswith("RolloutError: poison; set aside")


def test_tries_are_counted_over_attempts_and_more_are_allowed_later(options: WorkerOptions) -> None:
    run_chunk(dataclasses.replace(options, max_tries=2), FailingEngine(*[RolloutError("poison")] * 9))
    journal.begin_attempt(options.run_dir)
    assert find_exhausted(read_failures(options.run_dir), 3) == set()
    engine = FailingEngine(*[RolloutError("poison")] * 9)
    run_chunk(options, engine)
    assert engine.calls["question 2?"] == 1
    assert read_failures(options.run_dir)["q2/default/0"].tries == 3


def test_a_question_that_kills_engines_is_set_aside_and_the_others_finish(options: WorkerOptions) -> None:
    for death in range(3):
        with pytest.raises(EngineDiedError):
            run_chunk(options, FailingEngine(EngineDiedError(f"core dumped {death}")))
    engine = FailingEngine(EngineDiedError("not asked"))
    [summary] = run_chunk(options, engine)
    assert engine.calls["question 2?"] == 0
    assert (summary["finished"], summary["failed"], summary["errors"]) == (3, 1, [ENGINE_DIED])
    assert read_finished_questions(options) == ["q0", "q1", "q3"]
    assert read_failures(options.run_dir)["q2/default/0"].tries == 3
    # Question 3 ran beside it once; then they took turns, so that it was not taken for the culprit.
    assert read_failures(options.run_dir)["q3/default/0"].tries == 1


def test_what_an_engine_did_before_it_died_is_reported_by_the_next(options: WorkerOptions) -> None:
    class DyingEngine(FailingEngine):
        async def __call__(self, request: Request) -> Generation:
            if "question 3?" in request.messages[-1]["content"]:
                while len(journal.list_files(options.run_dir, FAILURES_DIR_NAME)) < 3:
                    await asyncio.sleep(0.01)
                raise EngineDiedError("core dumped")
            return await super().__call__(request)

    options = dataclasses.replace(options, flush_s=0)
    with pytest.raises(EngineDiedError):
        run_chunk(options, DyingEngine(*[RolloutError("poison")] * 3))
    engine = FailingEngine()
    [summary] = run_chunk(options, engine)
    assert engine.calls == {"question 3?": 1}
    assert (summary["finished"], summary["failed"], summary["turns"]) == (3, 1, 3)
    assert summary["errors"] == ["RolloutError: poison"]


def test_a_page_image_that_does_not_decode_is_an_error_of_its_rollout_alone(options: WorkerOptions, tmp_path: Path) -> None:
    key = f"ab/{'a' * 32}.jpg"
    (tmp_path / "ab").mkdir()
    (tmp_path / key).write_bytes(b"\xff\xd8 half a picture")

    class PictureEngine(FailingEngine):
        async def __call__(self, request: Request) -> Generation:
            if "question 2?" in request.messages[-1]["content"]:
                assert self.images
                self.images.open(key)
            return await super().__call__(request)

    [summary] = run_chunk(dataclasses.replace(options, image_dirs=(tmp_path,)), PictureEngine())
    assert read_finished_questions(options) == ["q0", "q1", "q3"]
    [error] = summary["errors"]
    assert error.startswith(f"DataError: {tmp_path / key}: damaged: the hash of its bytes is")


def test_the_last_error_of_a_rollout_is_told(options: WorkerOptions) -> None:
    for second, error in enumerate(("RolloutError: first", "RolloutError: last")):
        written = journal.Journal(options.run_dir, flush_s=0)
        written.add(build_trajectory(id="t", error=error, started_at=f"2026-01-01T00:00:0{second}+00:00"))
    failures = read_failures(options.run_dir)["t"]
    assert (failures.tries, failures.error, failures.engine_died) == (2, "RolloutError: last", False)


def test_errors_are_counted_of_rollouts_that_have_not_finished() -> None:
    failures = {f"r{number}": Failures(3, False, "ABBA"[number]) for number in range(4)}
    assert count_errors(failures, {"r1": frozenset(), "r2": None, "r4": None}) == {"A": 2, "B": 1}


def test_too_many_failures_are_told_with_the_three_commonest_errors() -> None:
    errors = Counter({"rare": 1, "a": 4, "b": 3, "c": 2})
    with pytest.raises(TooManyFailuresError) as caught:
        check_failure_rate(10, 40, 0.2, errors)
    told = str(caught.value).splitlines()
    assert told[0] == "10 of 40 rollouts failed, more than max_failure_rate 20%."
    assert told[1:4] == ["  4 x a", "  3 x b", "  2 x c"]
    assert "rare" not in str(caught.value)


@pytest.mark.parametrize(("num_failed", "num_rollouts", "rate"), [(0, 0, 0.0), (0, 8, 0.0), (8, 40, 0.2), (8, 8, 1.0)])
def test_as_many_failures_as_are_borne_are_no_error(num_failed: int, num_rollouts: int, rate: float) -> None:
    check_failure_rate(num_failed, num_rollouts, rate, Counter({"error": num_failed}))
