"""The agent loop, against a scripted engine and a real index."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from factories import build_question
from rollout_cases import QUESTION, roll_out, script

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig, Example
from drag_ray.agent.environment import SearchEnvironment, compute_evidence_rank, compute_rank_score
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask, compute_seed
from drag_ray.engine.generate import Generation, Request, list_images
from drag_ray.engine.scripted import ScriptedEngine
from drag_ray.errors import EngineDiedError, PromptTooLongError, RolloutError, SearchIndexError
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts
from drag_ray.types import ActionKind, Evidence, Hit, Hits, Page, StopReason


def test_a_search_is_scored_by_the_best_evidence_page(environment: SearchEnvironment) -> None:
    trajectory = roll_out(ScriptedEngine(script("<search>rotor</search>", "<answer>340</answer>")), environment)
    first, second = trajectory.turns
    assert [hit.file for hit in first.hits] == ["a.pdf", "b.pdf"]
    assert (first.evidence_rank, first.rank_score) == (2, 0.5)
    assert (second.action, trajectory.stop_reason, trajectory.final_answer) == (ActionKind.ANSWER, StopReason.ANSWER, "340")


def test_nothing_of_the_evidence_enters_the_conversation(environment: SearchEnvironment) -> None:
    trajectory = roll_out(
        ScriptedEngine(script("<search>fuel</search>", "<search>blade</search>", "<answer>x</answer>")), environment
    )
    conversation = trajectory.messages
    assert "b.pdf" not in conversation
    assert "z.pdf" not in conversation
    assert "340 rpm" not in conversation


def test_a_turn_replied_to_the_messages_that_it_counts(environment: SearchEnvironment) -> None:
    trajectory = roll_out(ScriptedEngine(script("<search>rotor</search>", "nonsense", "<answer>x</answer>")), environment)
    messages = json.loads(trajectory.messages)
    for turn in trajectory.turns:
        assert messages[turn.num_prompt_messages] == {"role": "assistant", "content": turn.raw_text}


def test_an_unreadable_reply_is_answered_with_the_format(environment: SearchEnvironment) -> None:
    engine = ScriptedEngine(script("rotor", "<search>rotor</search>", "<answer>x</answer>"))
    trajectory = roll_out(engine, environment)
    assert [turn.action for turn in trajectory.turns] == [ActionKind.INVALID, ActionKind.SEARCH, ActionKind.ANSWER]
    assert "<search>" in engine.requests[1].messages[-1]["content"]


def test_only_the_last_turn_is_asked_for_the_answer(environment: SearchEnvironment) -> None:
    engine = ScriptedEngine(script(*["<search>rotor</search>"] * 3))
    trajectory = roll_out(engine, environment)
    asked = [get_protocol("tags").final_request in request.messages[-1]["content"] for request in engine.requests]
    assert asked == [False, False, True]
    assert trajectory.stop_reason is StopReason.MAX_ITERATIONS


def test_examples_are_earlier_turns_and_the_question_comes_last(environment: SearchEnvironment) -> None:
    engine = ScriptedEngine(script("", "<search>rotor</search>", "<answer>x</answer>"))
    roll_out(engine, environment, examples=(Example(question="Where is the fuel?", query="fuel"),))
    roles = [message["role"] for message in engine.requests[0].messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert engine.requests[0].messages[2]["content"] == "<search>fuel</search>"
    assert QUESTION.question in engine.requests[0].messages[3]["content"]


def test_an_engine_error_is_recorded_and_not_raised(environment: SearchEnvironment) -> None:
    trajectory = roll_out(ScriptedEngine(script("<search>rotor</search>", RolloutError("engine gone"))), environment)
    assert trajectory.stop_reason is StopReason.ERROR
    assert trajectory.error == "RolloutError: engine gone"
    assert len(trajectory.turns) == 1


def test_a_context_that_is_full_ends_the_rollout_without_an_error(environment: SearchEnvironment) -> None:
    trajectory = roll_out(ScriptedEngine(script("<search>rotor</search>", PromptTooLongError("too long"))), environment)
    assert (trajectory.stop_reason, trajectory.error, len(trajectory.turns)) == (StopReason.CONTEXT_LENGTH, "", 1)


def test_a_question_that_never_fits_is_an_error(environment: SearchEnvironment) -> None:
    trajectory = roll_out(ScriptedEngine(script(PromptTooLongError("too long"))), environment)
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.CONTEXT_LENGTH, "too long")


class BrokenSearcher:
    """Finds nothing for one text, and fails for all others."""

    def __init__(self, works_for: str = "") -> None:
        self._works_for = works_for

    def search(self, text: str, top_k: int) -> Hits:
        if text != self._works_for:
            raise SearchIndexError("disk gone")
        return Hits()


def test_a_failed_search_is_an_error_and_not_an_empty_result() -> None:
    environment = SearchEnvironment(BrokenSearcher(works_for=QUESTION.question), top_k=2, depth=10)  # type: ignore[arg-type]
    trajectory = roll_out(ScriptedEngine(script("<search>rotor</search>")), environment)
    assert (trajectory.stop_reason, trajectory.error, trajectory.turns[0].error) == (StopReason.ERROR, "disk gone", "disk gone")


def test_a_rollout_fails_with_the_search_of_its_question_before_anything_is_written() -> None:
    environment = SearchEnvironment(BrokenSearcher(), top_k=2, depth=10)  # type: ignore[arg-type]
    engine = ScriptedEngine(script("<answer>x</answer>"))
    trajectory = roll_out(engine, environment)
    assert (trajectory.stop_reason, trajectory.error, trajectory.turns) == (StopReason.ERROR, "disk gone", ())
    assert engine.requests == []


class SlowSearcher:
    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher

    def search(self, text: str, top_k: int) -> Hits:
        if text == "slow":
            time.sleep(0.5)
        return self._searcher.search(text, top_k)

    def page(self, hit: Hit) -> Page:
        return self._searcher.page(hit)


def test_a_slow_search_does_not_hold_up_other_rollouts(environment: SearchEnvironment) -> None:
    slow_environment = SearchEnvironment(SlowSearcher(environment._searcher), top_k=2, depth=10)  # type: ignore[arg-type]
    ended: list[str] = []

    async def run(query: str) -> None:
        engine = ScriptedEngine(script(f"<search>{query}</search>"))
        rollouts = Rollouts(
            AgentConfig(query_mode="rewrite", top_k=2, max_iterations=1), Policy("model"), engine, slow_environment, "index"
        )
        await rollouts.run(RolloutTask(QUESTION, 0, "default", 7))
        ended.append(query)

    async def run_both() -> None:
        await asyncio.gather(run("slow"), run("rotor"))

    asyncio.run(run_both())
    assert ended == ["rotor", "slow"]


@pytest.mark.parametrize(("rank", "score"), [(1, 1.0), (2, 2 / 3), (3, 1 / 3), (4, 0.0), (None, 0.0)])
def test_rank_score_is_the_reference_table(rank: int | None, score: float) -> None:
    assert compute_rank_score(rank, top_k=3) == pytest.approx(score)


def test_all_evidence_counts_and_the_page_must_match() -> None:
    hits = (Hit("b.pdf", 1, 1, 3.0), Hit("z.pdf", 9, 2, 2.0), Hit("b.pdf", 2, 3, 1.0))
    assert compute_evidence_rank(hits, QUESTION.evidence) == 2
    assert compute_evidence_rank(hits[:1], QUESTION.evidence) is None


def test_seeds_depend_on_the_run_and_the_rollout_alone() -> None:
    assert compute_seed(1, "q/default/0") == compute_seed(1, "q/default/0")
    assert len({compute_seed(run, f"q/default/{sample}") for run in range(3) for sample in range(50)}) == 150


def test_each_turn_draws_with_another_seed(environment: SearchEnvironment) -> None:
    engine = ScriptedEngine(script("<search>a</search>", "<search>b</search>", "<search>c</search>"))
    roll_out(engine, environment)
    assert len({request.seed for request in engine.requests}) == 3


def test_a_trajectory_survives_its_table(environment: SearchEnvironment) -> None:
    trajectory = roll_out(
        ScriptedEngine(script("<search>rotor</search>", "<answer>x <cite>b.pdf#2</cite></answer>")), environment
    )
    [row] = schemas.to_table([trajectory], schemas.TRAJECTORIES).to_pylist()
    restored = schemas.to_trajectory(row)
    assert restored.turns[0].hits[0].score == pytest.approx(trajectory.turns[0].hits[0].score)
    assert restored.citations == (Evidence("b.pdf", 2),)
    assert restored.messages == trajectory.messages


def test_with_functions_the_model_is_answered_as_a_tool(environment: SearchEnvironment) -> None:
    tools = get_protocol("tools")
    engine = ScriptedEngine(script(tools.render_search("rotor", "why"), "no call", tools.render_answer("340 rpm")))
    trajectory = roll_out(engine, environment, protocol="tools")
    assert [turn.action for turn in trajectory.turns] == [ActionKind.SEARCH, ActionKind.INVALID, ActionKind.ANSWER]
    assert (trajectory.protocol, trajectory.final_answer, trajectory.stop_reason) == ("tools", "340 rpm", StopReason.ANSWER)
    roles = [message["role"] for message in json.loads(trajectory.messages)]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert all(request.tools == tools.list_functions() and request.stop == ("</tool_call>",) for request in engine.requests)
    assert tools.final_request in engine.requests[-1].messages[-1]["content"]


def test_pages_are_shown_as_images_and_older_ones_are_hidden(tmp_path: Path) -> None:
    pages = [
        Page("a.pdf", 1, 1, "rotor rotor", image="aa/1.jpg"),
        Page("b.pdf", 2, 2, "rotor speed"),
        Page("c.pdf", 1, 1, "fuel", image="cc/3.jpg"),
    ]
    artifacts.write_parquet(tmp_path / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(tmp_path / "pages.parquet", tmp_path / "index", SearchConfig())
    environment = SearchEnvironment(Searcher(tmp_path / "index"), top_k=2, depth=10)
    engine = ScriptedEngine(script("<search>rotor</search>", "<search>fuel</search>", "<answer>x</answer>"))
    trajectory = roll_out(engine, environment, page_view="image", image_searches=1)
    assert [list_images(request.messages) for request in engine.requests] == [[], ["aa/1.jpg"], ["cc/3.jpg"]]
    assert list_images(json.loads(trajectory.messages)) == ["aa/1.jpg", "cc/3.jpg"]
    first = engine.requests[1].messages[-1]["content"]
    assert [part["type"] for part in first] == ["text", "image", "text"]
    assert first[2]["text"] == "\n\n[2] b.pdf#2\nrotor speed"  # no picture of this page: its text
    assert engine.requests[2].messages[3]["content"] == "Pages found:\n\n[1] a.pdf#1\n\n\n[2] b.pdf#2\nrotor speed"
    assert engine.requests[2].messages[-1]["content"][-1]["text"].endswith(get_protocol("tags").final_request)


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("perhaps <search>rotor</search>", ActionKind.INVALID),
        ("perhaps <search>fuel</search>, no</think><search>rotor</search>", ActionKind.SEARCH),
        ("<think>", ActionKind.INVALID),
    ],
)
def test_a_reply_to_a_prompt_that_opens_the_reasoning_begins_within_it(
    environment: SearchEnvironment, reply: str, action: ActionKind
) -> None:
    async def generate(request: Request) -> Generation:
        return Generation(reply, (), (), "stop", in_reasoning=True)

    [turn] = roll_out(generate, environment, max_iterations=1).turns
    assert (turn.action, turn.raw_text) == (action, reply)
    assert turn.query == ("rotor" if action is ActionKind.SEARCH else "")


def test_the_death_of_an_engine_is_no_failure_of_the_rollout(environment: SearchEnvironment) -> None:
    with pytest.raises(EngineDiedError):
        roll_out(ScriptedEngine(script(EngineDiedError("gone"))), environment)


def test_the_ranking_of_the_question_itself_is_recorded(environment: SearchEnvironment) -> None:
    question = build_question(question="How fast does the rotor turn in flight?", evidence=QUESTION.evidence)
    rollouts = Rollouts(
        AgentConfig(query_mode="rewrite", top_k=2, max_iterations=1),
        Policy("m"),
        ScriptedEngine(script("<search>fuel</search>")),
        environment,
        "index",
    )
    trajectory = asyncio.run(rollouts.run(RolloutTask(question, 0, "default", 7)))
    assert [hit.file for hit in trajectory.question_hits] == ["b.pdf", "a.pdf"]
    assert trajectory.question_rank == 1
    assert (trajectory.query_mode, trajectory.question_weight) == ("rewrite", 1.0)
    [row] = schemas.to_table([trajectory], schemas.TRAJECTORIES).to_pylist()
    assert schemas.to_row(schemas.to_trajectory(row)) == row
    assert rollouts.fail(RolloutTask(question, 0, "default", 7), "engine gone").question_hits == ()
