"""The journal and the worker: slots are filled again as soon as they are free, nothing is done twice, and what an engine took
with it comes back a few at a time."""

import asyncio
import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from factories import build_question, build_search, build_trajectory
from otlp_receiver import read_attributes, receive_spans
from rollout_workers import build_worker, run_chunks
from scripted_engine import ScriptedEngine

from drag_ray.agent.task import Policy
from drag_ray.cluster.metrics import name_tags
from drag_ray.cluster.telemetry import TelemetryConfig
from drag_ray.engine.generate import Generation, Request
from drag_ray.errors import BudgetError, EngineDiedError, RolloutError
from drag_ray.messages import JsonFormatter
from drag_ray.rollout import journal
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.failures import read_failures
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan, choose_pending, cut_chunks
from drag_ray.rollout.worker import Quarantine
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.types import Evidence, Question

QUESTIONS = [build_question(id=f"q{number}", question=f"question {number}?") for number in range(6)]


def test_every_rollout_is_written_once(options: WorkerOptions) -> None:
    plan = build_plan(QUESTIONS, ("default",), 2, run_seed=0)
    worker = build_worker(options, ScriptedEngine(lambda request: "<search>rotor</search>"))
    summaries = run_chunks(worker, cut_chunks(plan, 5))
    assert sum(summary["finished"] for summary in summaries) == 12
    assert journal.read_trajectories(options.run_dir)["id"].to_pylist() == sorted(task.id for task in plan)
    assert choose_pending(plan, journal.read_successes(options.run_dir)) == []


def test_failed_rollouts_are_kept_apart_and_pending(options: WorkerOptions, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.setFormatter(JsonFormatter())

    def reply(request: Request) -> str:
        if "question 3" in request.messages[-1]["content"]:
            raise RolloutError("poison")
        return "<search>rotor</search>"

    plan = build_plan(QUESTIONS, ("default",), 1, run_seed=0)
    [summary] = run_chunks(build_worker(options, ScriptedEngine(reply)), cut_chunks(plan, 6))
    assert (summary["finished"], summary["failed"], summary["errors"]) == (5, 1, ["RolloutError: poison"])
    told = json.loads(caplog.text)
    assert told["message"] == "the rollout q3/default/0 failed: RolloutError: poison"
    assert {name: told[name] for name in ("run", "stage", "question")} == {**name_tags(options.run_dir), "question": "q3"}
    assert set(read_failures(options.run_dir)) == {"q3/default/0"}
    assert [task.question.id for task in choose_pending(plan, journal.read_successes(options.run_dir))] == ["q3"]


def test_a_chunk_that_is_given_out_again_repeats_only_what_is_missing(options: WorkerOptions) -> None:
    plan = build_plan(QUESTIONS, ("default",), 1, run_seed=0)
    [chunk] = cut_chunks(plan, 6)
    early = journal.Journal(options.run_dir, flush_s=0)
    journal.begin_chunk(options.run_dir, 0, early.engine)
    early.add(build_trajectory(build_search(), id=plan[0].id))
    engine = ScriptedEngine(lambda request: "<search>rotor</search>")
    [summary] = run_chunks(build_worker(options, engine), [chunk])
    assert len(engine.requests) == 5
    assert len(journal.read_trajectories(options.run_dir)) == 6
    assert (summary["finished"], summary["turns"]) == (6, 6)


def test_a_worker_goes_on_with_another_policy_in_another_folder(options: WorkerOptions, tmp_path: Path) -> None:
    plan, run_dir = build_plan(QUESTIONS, ("default",), 1, run_seed=0), tmp_path / "next"
    engine = ScriptedEngine(lambda request: f"<search>rotor {request.adapter}</search>")
    worker = build_worker(options, engine)
    run_chunks(worker, cut_chunks(plan, 3))
    journal.begin_attempt(run_dir)
    changes = {"run_dir": run_dir, "policies": {"": Policy("model", "adapter")}}
    worker.begin(dataclasses.replace(options, build_engine=lambda *_: engine, **changes), journal.keep_here)
    summaries = run_chunks(worker, cut_chunks(plan, 3))
    assert sum(summary["finished"] for summary in summaries) == len(plan)
    for folder, adapter in ((options.run_dir, ""), (run_dir, "adapter")):
        rows = journal.read_trajectories(folder).to_pylist()
        assert [row["id"] for row in rows] == sorted(task.id for task in plan)
        assert {(row["provenance"]["adapter"], row["turns"][0]["query"]) for row in rows} == {
            (adapter, f"rotor {adapter}".strip())
        }


def test_with_a_folder_of_its_node_a_worker_searches_there(options: WorkerOptions, tmp_path: Path) -> None:
    options = dataclasses.replace(options, node_dir=tmp_path / "node")
    worker = build_worker(options, ScriptedEngine(lambda request: "<search>rotor</search>"))
    shutil.rmtree(options.index_dir)
    [summary] = run_chunks(worker, cut_chunks(build_plan(QUESTIONS, ("default",), 1, run_seed=0), 6))
    assert (summary["finished"], summary["zero_hit_searches"]) == (6, 0)
    with pytest.raises(ValueError, match=r"'node' is not absolute"):
        RolloutConfig(node_dir=Path("node"))


def test_the_model_is_told_the_language_of_the_index(options: WorkerOptions) -> None:
    engine = ScriptedEngine(lambda request: "<search>rotor</search>")
    plan = build_plan(QUESTIONS[:1], ("default",), 1, run_seed=0)
    run_chunks(build_worker(options, engine), cut_chunks(plan, 1))
    build_index(options.index_dir.parent / "pages.parquet", options.index_dir, SearchConfig(syntax="query"))
    plan = build_plan(QUESTIONS[1:2], ("default",), 1, run_seed=0)
    run_chunks(build_worker(options, engine), cut_chunks(plan, 1))
    told = ["exact phrase" in request.messages[0]["content"] for request in engine.requests]
    assert told == [False, True]


class StaggeredEngine:
    """Replies to question 0 when nothing else is left to reply to, and notes how many requests ran at once."""

    def __init__(self) -> None:
        self.running = 0
        self.others_left = 20
        self.others_ended = asyncio.Event()
        self.most_running = 0
        self.ended: list[str] = []

    async def __call__(self, request: Request) -> Generation:
        question = request.messages[-1]["content"]
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        if "question 0" in question:
            await asyncio.wait_for(self.others_ended.wait(), timeout=60)
        else:
            await asyncio.sleep(0.02)
            self.others_left -= 1
            if self.others_left == 0:
                self.others_ended.set()
        self.running -= 1
        self.ended.append(question)
        return Generation("<search>rotor</search>", (), (), "stop")


def test_a_finished_rollout_frees_its_slot_while_a_long_one_goes_on(options: WorkerOptions) -> None:
    engine = StaggeredEngine()
    plan = build_plan(QUESTIONS, ("default",), 4, run_seed=0)
    run_chunks(build_worker(options, engine), cut_chunks(plan[3:], 3))
    assert engine.most_running == 4
    assert engine.ended[-1].endswith("question 0?")


def list_rollouts(options: WorkerOptions) -> list[str]:
    return journal.read_trajectories(options.run_dir)["id"].to_pylist()


def find_page_in_sample(number: int, question: str = "question 0?") -> ScriptedEngine:
    """Finds the page with a query of its own from sample `number` of a question on; what other questions ask finds nothing."""
    seeds = [task.seed + 1 for task in build_plan(QUESTIONS, ("default",), 8, run_seed=0) if task.question.question == question]
    return ScriptedEngine(
        lambda request: f"<search>rotor {request.seed}</search>" if request.seed in seeds[number:] else "<search>nothing</search>"
    )


@pytest.fixture
def findable(options: WorkerOptions) -> list[Question]:
    """Questions whose evidence is the page of the index."""
    return [dataclasses.replace(question, evidence=(Evidence("a.pdf", 1),)) for question in QUESTIONS[:2]]


def test_samples_of_a_question_stop_when_enough_of_them_succeeded(options: WorkerOptions, findable: list[Question]) -> None:
    options = dataclasses.replace(options, enough_successes=2)
    plan = build_plan(findable, ("default",), 6, run_seed=0)
    [summary] = run_chunks(build_worker(options, find_page_in_sample(1)), cut_chunks(plan, 12))
    assert list_rollouts(options) == [
        *(f"q0/default/{index}" for index in range(3)),
        *(f"q1/default/{index}" for index in range(6)),
    ]
    assert (summary["finished"], summary["skipped"], summary["found"]) == (9, 3, 2)
    ended = journal.read_successes(options.run_dir)
    assert choose_pending(plan, ended, 2) == []
    assert {task.question.id for task in choose_pending(plan, ended, 3)} == {"q0"}


def test_an_engine_that_takes_over_decides_as_the_one_that_died(options: WorkerOptions, findable: list[Question]) -> None:
    options = dataclasses.replace(options, enough_successes=2)
    plan = build_plan(findable[:1], ("default",), 6, run_seed=0)
    [chunk] = cut_chunks(plan, 6)
    run_chunks(build_worker(options, find_page_in_sample(1)), [chunk])
    expected = list_rollouts(options)
    [summary] = run_chunks(build_worker(options, engine := find_page_in_sample(1)), [chunk])
    assert (list_rollouts(options), engine.requests) == (expected, [])
    assert (summary["finished"], summary["skipped"]) == (3, 3)  # the one that died did not report them


def test_a_hint_is_given_where_no_sample_found_the_page(options: WorkerOptions, findable: list[Question]) -> None:
    plan = build_plan(findable, ("default",), 2, run_seed=0, hinted_samples=1)
    engine = find_page_in_sample(1)
    [summary] = run_chunks(build_worker(options, engine), cut_chunks(plan, 6))
    ids = ["q0/default/0", "q0/default/1", "q1/default/0", "q1/default/0/hinted", "q1/default/1"]
    assert list_rollouts(options) == ids
    told = [
        request
        for request in engine.requests
        if "This page answers the question below:\n\nrotor" in request.messages[-1]["content"]
    ]
    assert [request.messages[-1]["content"].endswith("Question: question 1?") for request in told] == [True]
    assert (summary["finished"], summary["hinted"], summary["skipped"], summary["turns"]) == (4, 1, 1, 4)
    kept = journal.read_trajectories(options.run_dir)
    assert [row["provenance"]["hinted"] for row in kept.to_pylist()] == [rollout_id.endswith("hinted") for rollout_id in ids]
    assert "This page answers" not in str(kept.to_pylist())


def test_a_spent_budget_ends_a_run_with_the_rollouts_that_were_under_way(options: WorkerOptions) -> None:
    """Four run at once. One of the first three, which are a chunk, is refused; the others, which were begun, are kept, and no
    further one is begun."""
    begun: list[str] = []
    four_run, is_spent = asyncio.Event(), asyncio.Event()

    async def reply(request: Request) -> Generation:
        begun.append(request.messages[-1]["content"])
        if len(begun) == 4:
            four_run.set()
        await four_run.wait()
        if "question 1?" in request.messages[-1]["content"]:
            is_spent.set()
            raise BudgetError("it is spent")
        await is_spent.wait()
        return Generation("<search>rotor</search>", (), (), "stop")

    plan = build_plan(QUESTIONS, ("default",), 1, run_seed=0)
    worker = build_worker(options, reply)

    async def run() -> list[object]:
        chunks = [worker(chunk) for chunk in cut_chunks(plan, 3)]
        return await asyncio.gather(*chunks, return_exceptions=True)

    assert [str(error) for error in asyncio.run(run()) if isinstance(error, BudgetError)] == ["it is spent"] * 2
    assert len(begun) == 4
    assert len(journal.read_successes(options.run_dir)) == 3
    assert read_failures(options.run_dir) == {}
    journal.begin_attempt(options.run_dir)
    pending = choose_pending(plan, journal.read_successes(options.run_dir))
    run_chunks(build_worker(options, ScriptedEngine(lambda request: "<search>rotor</search>")), cut_chunks(pending, 3))
    assert journal.read_trajectories(options.run_dir)["id"].to_pylist() == sorted(task.id for task in plan)


def test_a_collector_is_told_of_every_rollout_and_where_it_belongs(options: WorkerOptions) -> None:
    plan = build_plan(QUESTIONS, ("default",), 2, run_seed=0)
    with receive_spans() as receiver:
        options = dataclasses.replace(options, telemetry=TelemetryConfig(endpoint=receiver.url))
        run_chunks(build_worker(options, ScriptedEngine(lambda request: "<search>rotor</search>")), cut_chunks(plan, 5))
        told = [read_attributes(root)["gen_ai.conversation.id"] for root in receiver.list_roots()]
    assert sorted(told) == sorted(task.id for task in plan)
    assert receiver.sender["drag_ray.stage"] == "run"


async def run_rounds(quarantine: Quarantine, alone: list[bool], rounds: int) -> list[list[int]]:
    """List the rollouts that run in each round, at whose end all of them end."""
    running, ends = list[int](), [asyncio.Event() for _ in range(rounds)]
    seen = list[list[int]]()

    async def run(number: int) -> None:
        async with quarantine.enter(alone[number]):
            running.append(number)
            await ends[len(seen)].wait()
            running.remove(number)

    tasks = [asyncio.create_task(run(number)) for number in range(len(alone))]
    for end in ends:
        for _ in range(20 * len(alone)):  # whoever can enters
            await asyncio.sleep(0)
        seen.append(sorted(running))
        end.set()
    await asyncio.gather(*tasks)
    return seen


async def test_twice_as_many_run_each_time_until_there_are_a_quarter_of_the_slots() -> None:
    rounds = await run_rounds(Quarantine(num_slots=16), [False] * 15, rounds=5)
    assert [len(running) for running in rounds] == [1, 2, 4, 4, 4]
    assert sorted(number for running in rounds for number in running) == list(range(15))


async def test_who_has_one_try_left_runs_alone_and_when_no_other_does() -> None:
    rounds = await run_rounds(Quarantine(num_slots=16), [False, True, False, False, True], rounds=4)
    assert rounds[0] == [0]
    assert [1] in rounds
    assert [4] in rounds
    assert sorted(number for running in rounds for number in running) == [0, 1, 2, 3, 4]


async def test_an_engine_that_dies_admits_no_more_than_before() -> None:
    quarantine = Quarantine(num_slots=16)
    with pytest.raises(EngineDiedError):
        async with quarantine.enter(alone=False):
            raise EngineDiedError("gone")
    assert [len(running) for running in await run_rounds(quarantine, [False] * 3, rounds=2)] == [1, 2]
