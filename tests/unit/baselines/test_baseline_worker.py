"""Baselines with a model share the engine, the index and the journal of the agent that they are compared with."""

import asyncio
from dataclasses import replace
from pathlib import Path

from factories import build_question
from scripted_engine import ScriptedEngine
from small_index import index_texts

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.baselines.passages import Hyde, Query2doc
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Request
from drag_ray.rollout import journal
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan, cut_chunks
from drag_ray.rollout.worker import RolloutWorker

NAMES = ("", "hyde", "query2doc")


def reply(request: Request) -> str:
    is_passage = "passage" in request.messages[-1]["content"]
    return "Rotor limits are in the manual." if is_passage else "<search>rotor</search>"


def test_one_engine_rolls_out_the_agent_and_its_baselines(tmp_path: Path) -> None:
    searcher = index_texts(tmp_path, [f"rotor speed limit {number}" for number in range(1, 9)])
    agent, engine = AgentConfig(max_iterations=1), ScriptedEngine(reply)
    options = WorkerOptions(
        run_dir=tmp_path / "run",
        index_dir=searcher.index_dir,
        agent=agent,
        engine=EngineConfig(model="tiny"),
        policies={"": Policy("tiny")},
        concurrent_rollouts=4,
        flush_s=0,
        baselines={"hyde": Hyde(), "query2doc": Query2doc()},
        build_engine=lambda config, images, adapters: engine,
    )
    questions = [build_question(id=f"q{number}") for number in range(3)]
    tasks = build_plan(questions, ("greedy",), 1, run_seed=0)
    plan = [replace(task, baseline=name) for name in NAMES for task in tasks]
    journal.begin_attempt(options.run_dir)

    async def run() -> None:
        worker = RolloutWorker(options)
        for start, chunk in zip(range(0, len(plan), 4), cut_chunks(plan, chunk_rollouts=4), strict=True):
            assert [task.id for task in chunk.tasks] == [task.id for task in plan[start : start + 4]]
            await worker(chunk)

    asyncio.run(run())
    rows = journal.read_trajectories(options.run_dir).to_pylist()
    assert {row["id"] for row in rows} == {task.id for task in plan}
    assert {row["provenance"]["model"] for row in rows} == {"tiny", "hyde:tiny", "query2doc:tiny"}
    assert len(engine.requests) == len(plan) == 9
    assert all(row["error"] == "" and row["turns"][0]["ranking"]["hits"] for row in rows)
