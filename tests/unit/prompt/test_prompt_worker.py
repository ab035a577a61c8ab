"""Rollouts with any instructions, on a scripted engine and a real index."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from small_index import open_index

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import GenerateFn, Generation, Request
from drag_ray.engine.scripted import ScriptedEngine
from drag_ray.errors import EngineDiedError, RolloutError
from drag_ray.prompt import stage
from drag_ray.prompt.config import PromptConfig
from drag_ray.prompt.optimisation import Outcome
from drag_ray.prompt.stage import PromptWorker
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan
from drag_ray.types import Evidence, Page, Question

QUESTIONS = [Question(f"q{number}", f"How fast is it, {number}?", (Evidence("b.pdf", 1),), split="train") for number in range(6)]
TASKS = build_plan(QUESTIONS, ("greedy",), 1, run_seed=0)


@pytest.fixture
def build_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PromptWorker]:
    monkeypatch.setattr(stage, "log_to_file", lambda run_dir: None)  # this process keeps its output
    pages = [Page("a.pdf", 1, 1, "How fast it is, it is"), Page("b.pdf", 1, 1, "The rotor\n  turns fast")]
    index_dir = open_index(tmp_path, pages).index_dir

    def build(engine: GenerateFn, **changed: object) -> PromptWorker:
        agent = AgentConfig(max_iterations=1, query_mode="expand", question_weight=0.5, top_k=1)
        fields = {"run_dir": tmp_path, "index_dir": index_dir, "agent": agent, "engine": EngineConfig()}
        fields |= {"policies": {"": Policy("model")}, "concurrent_rollouts": 4, "flush_s": 0, **changed}
        options = WorkerOptions(**fields, build_engine=lambda config, images, adapters: engine)  # type: ignore[arg-type]
        worker = PromptWorker(options, PromptConfig(page_chars=13, max_tokens=77))
        asyncio.run(worker.start())
        return worker

    return build


def test_the_instructions_are_the_first_paragraph_of_the_prompt(build_worker: Callable[..., PromptWorker]) -> None:
    def reply(request: Request) -> str:
        return "<search>rotor</search>" if request.messages[0]["content"].startswith("Say rotor.\n\n") else "<search></search>"

    engine = ScriptedEngine(reply)
    worker = build_worker(engine)
    better, own = (asyncio.run(worker.roll_out(text, TASKS)) for text in ("Say rotor.", "Say nothing."))
    assert [outcome.record["Inputs"]["Question"] for outcome in better] == [question.question for question in QUESTIONS]
    assert [(outcome.score, outcome.question_score) for outcome in better] == [(1.0, pytest.approx(0.6309297535714575))] * 6
    assert {outcome.score for outcome in own} == {outcome.question_score for outcome in own}
    assert better[0].record["Feedback"].endswith("The right page says: The rotor tur")
    assert {request.sampling.temperature for request in engine.requests} == {0.0}


def test_rollouts_run_at_once_in_as_many_slots_as_there_are(build_worker: Callable[..., PromptWorker]) -> None:
    running, most = 0, 0

    async def reply(request: Request) -> Generation:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return Generation("<search>rotor</search>", (), (), "stop")

    asyncio.run(build_worker(reply).roll_out("Say rotor.", TASKS))
    assert most == 4


def run_failing(build_worker: Callable[..., PromptWorker], num_failures: int, **options: object) -> Outcome:
    left = iter(range(num_failures))

    def reply(request: Request) -> str:
        if next(left, None) is not None:
            raise RolloutError("no reply")
        return "<search>rotor</search>"

    return asyncio.run(build_worker(ScriptedEngine(reply), **options).roll_out("Say rotor.", TASKS[:1]))[0]


def test_a_rollout_that_fails_is_tried_again_unless_its_engine_died(build_worker: Callable[..., PromptWorker]) -> None:
    assert run_failing(build_worker, 2, max_tries=3).score == 1.0
    failed = run_failing(build_worker, 3, max_tries=3)
    assert (failed.score, failed.error) == (0.0, "RolloutError: no reply")

    def reply(request: Request) -> str:
        raise EngineDiedError("gone")

    with pytest.raises(EngineDiedError, match="gone"):
        asyncio.run(build_worker(ScriptedEngine(reply)).roll_out("Say rotor.", TASKS))


@pytest.mark.parametrize(
    ("text", "in_reasoning", "reply"),
    [
        ("```\nSearch.\n```", False, "```\nSearch.\n```"),
        ("<think>Hm.</think>Search.", False, "Search."),
        ("Hm.</think>Search.", True, "Search."),
        ("Hm, hm", True, None),
    ],
)
def test_a_proposal_is_read_without_its_reasoning(
    build_worker: Callable[..., PromptWorker], text: str, in_reasoning: bool, reply: str | None
) -> None:
    async def write(request: Request) -> Generation:
        assert (request.messages[0]["content"], request.max_tokens, request.seed) == ("Propose.", 77, 5)
        assert request.sampling.temperature > 0
        return Generation(text, (), (), "stop", in_reasoning=in_reasoning)

    assert asyncio.run(build_worker(write).write("Propose.", 5)) == reply
