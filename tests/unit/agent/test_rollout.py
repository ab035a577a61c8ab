"""The agent loop, against a scripted engine and a real index."""

import asyncio
import json
from pathlib import Path

import pytest
from factories import build_question
from rollout_cases import QUESTION, build_rollouts, roll_out, script
from scripted_engine import ScriptedEngine
from small_index import open_index

from drag_ray import schemas
from drag_ray.agent.config import Example
from drag_ray.agent.environment import SearchEnvironment, SearchResult, compute_evidence_rank
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.task import RolloutTask, compute_seed
from drag_ray.engine.generate import Generation, Request, list_images
from drag_ray.errors import EngineDiedError, PromptTooLongError, RolloutError, SearchIndexError
from drag_ray.types import ActionKind, Hit, Hits, Page, StopReason


def test_a_search_is_scored_by_the_best_evidence_of_which_nothing_is_shown(environment: SearchEnvironment) -> None:
    trajectory = roll_out(ScriptedEngine(script("<search>rotor</search>", "<answer>340</answer>")), environment)
    first, second = trajectory.turns
    assert [hit.file for hit in first.ranking.hits] == ["a.pdf", "b.pdf"]
    assert (first.ranking.evidence_rank, first.ranking.rank_score) == (2, 0.5)
    assert (second.action, trajectory.stop_reason, trajectory.final_answer.text) == (ActionKind.ANSWER, StopReason.ANSWER, "340")
    trajectory = roll_out(
        ScriptedEngine(script("<search>fuel</search>", "<search>blade</search>", "<answer>x</answer>")), environment
    )
    assert not [text for text in ("b.pdf", "z.pdf", "340 rpm") if text in trajectory.messages]


def test_an_unreadable_reply_is_answered_with_the_format_and_messages_are_counted(
    environment: SearchEnvironment,
) -> None:
    engine = ScriptedEngine(script("rotor", "<search>rotor</search>", "<answer>x</answer>"))
    trajectory = roll_out(engine, environment)
    assert [turn.action for turn in trajectory.turns] == [ActionKind.INVALID, ActionKind.SEARCH, ActionKind.ANSWER]
    assert "<search>" in engine.requests[1].messages[-1]["content"]
    messages = json.loads(trajectory.messages)
    for turn in trajectory.turns:
        assert messages[turn.num_prompt_messages] == {"role": "assistant", "content": turn.raw_text}


def test_only_the_last_turn_is_asked_for_the_answer_and_each_draws_with_another_seed(environment: SearchEnvironment) -> None:
    engine = ScriptedEngine(script(*["<search>rotor</search>"] * 3))
    trajectory = roll_out(engine, environment)
    asked = [get_protocol("tags").final_request in request.messages[-1]["content"] for request in engine.requests]
    assert asked == [False, False, True]
    assert trajectory.stop_reason is StopReason.MAX_ITERATIONS
    assert len({request.seed for request in engine.requests}) == 3


def test_who_goes_in_circles_is_asked_for_the_answer_at_once(environment: SearchEnvironment) -> None:
    same, other = "<search>rotor</search>", "<search>blade</search>"
    engine = ScriptedEngine(script(same, other, same, same, same, "<answer>340</answer>"))
    trajectory = roll_out(engine, environment, max_iterations=9)
    asked = [get_protocol("tags").final_request in request.messages[-1]["content"] for request in engine.requests]
    assert asked == [False] * 5 + [True]
    assert (trajectory.stop_reason, trajectory.final_answer.text) == (StopReason.ANSWER, "340")
    trajectory = roll_out(ScriptedEngine(script(*[same] * 9)), environment, max_iterations=9)
    assert (trajectory.stop_reason, len(trajectory.turns)) == (StopReason.MAX_ITERATIONS, 4)


def test_who_is_told_something_else_each_time_does_not_go_in_circles(
    environment: SearchEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds = iter(range(1, 9))

    async def search(*_: object) -> SearchResult:
        page = Page(f"{next(finds)}.pdf", 1, 1, "text")
        return SearchResult(shown=((Hit(page.file, 1, 1, 1.0), page),))

    monkeypatch.setattr(environment, "search", search)
    trajectory = roll_out(ScriptedEngine(script(*["<search>rotor</search>"] * 6)), environment, max_iterations=6)
    assert len(trajectory.turns) == 6


def test_examples_are_earlier_turns_and_the_question_comes_last(environment: SearchEnvironment) -> None:
    engine = ScriptedEngine(script("", "<search>rotor</search>", "<answer>x</answer>"))
    roll_out(engine, environment, examples=(Example(question="Where is the fuel?", query="fuel"),))
    roles = [message["role"] for message in engine.requests[0].messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert engine.requests[0].messages[2]["content"] == "<search>fuel</search>"
    assert QUESTION.question in engine.requests[0].messages[3]["content"]


@pytest.mark.parametrize(
    ("replies", "stop_reason", "error"),
    [
        (("<search>rotor</search>", RolloutError("engine gone")), StopReason.ERROR, "RolloutError: engine gone"),
        (("<search>rotor</search>", PromptTooLongError("too long")), StopReason.CONTEXT_LENGTH, ""),  # the context is full
        ((PromptTooLongError("too long"),), StopReason.CONTEXT_LENGTH, "too long"),  # the question never fits
    ],
)
def test_what_the_engine_cannot_do_ends_the_rollout_and_is_recorded(
    environment: SearchEnvironment, replies: tuple[str | Exception, ...], stop_reason: StopReason, error: str
) -> None:
    trajectory = roll_out(ScriptedEngine(script(*replies)), environment)
    assert (trajectory.stop_reason, trajectory.error, len(trajectory.turns)) == (stop_reason, error, len(replies) - 1)


class BrokenSearcher:
    """Finds nothing for one text, and fails for all others."""

    def __init__(self, works_for: str = "") -> None:
        self._works_for = works_for

    def search(self, text: str, top_k: int) -> Hits:
        if text != self._works_for:
            raise SearchIndexError("disk gone")
        return Hits()


def test_a_search_that_fails_is_an_error_and_no_empty_result() -> None:
    environment = SearchEnvironment(BrokenSearcher(works_for=QUESTION.question), top_k=2, depth=10)  # type: ignore[arg-type]
    trajectory = roll_out(ScriptedEngine(script("<search>rotor</search>")), environment)
    assert (trajectory.stop_reason, trajectory.error, trajectory.turns[0].error) == (StopReason.ERROR, "disk gone", "disk gone")
    environment = SearchEnvironment(BrokenSearcher(), top_k=2, depth=10)  # type: ignore[arg-type]
    engine = ScriptedEngine(script("<answer>x</answer>"))
    trajectory = roll_out(engine, environment)
    assert (trajectory.stop_reason, trajectory.error, trajectory.turns) == (StopReason.ERROR, "disk gone", ())
    assert engine.requests == []


def test_all_evidence_counts_where_the_page_matches_and_seeds_depend_on_run_and_rollout() -> None:
    hits = (Hit("b.pdf", 1, 1, 3.0), Hit("z.pdf", 9, 2, 2.0), Hit("b.pdf", 2, 3, 1.0))
    assert compute_evidence_rank(hits, QUESTION.evidence) == 2
    assert compute_evidence_rank(hits[:1], QUESTION.evidence) is None
    assert compute_seed(1, "q/default/0") == compute_seed(1, "q/default/0")
    assert len({compute_seed(run, f"q/default/{sample}") for run in range(3) for sample in range(50)}) == 150


def test_with_functions_the_model_is_answered_as_a_tool(environment: SearchEnvironment) -> None:
    tools = get_protocol("tools")
    engine = ScriptedEngine(script(tools.render_search("rotor", "why"), "no call", tools.render_answer("340 rpm")))
    trajectory = roll_out(engine, environment, protocol="tools")
    assert [turn.action for turn in trajectory.turns] == [ActionKind.SEARCH, ActionKind.INVALID, ActionKind.ANSWER]
    assert (trajectory.protocol, trajectory.final_answer.text, trajectory.stop_reason) == ("tools", "340 rpm", StopReason.ANSWER)
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
    environment = SearchEnvironment(open_index(tmp_path, pages), top_k=2, depth=10)
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
def test_a_reply_to_a_prompt_that_opens_reasoning_begins_in_it(
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
    rollouts = build_rollouts(ScriptedEngine(script("<search>fuel</search>")), environment, max_iterations=1)
    trajectory = asyncio.run(rollouts.run(RolloutTask(question, 0, "default", 7)))
    assert [hit.file for hit in trajectory.question_search.hits] == ["b.pdf", "a.pdf"]
    assert trajectory.question_search.rank == 1
    assert (trajectory.question_search.mode, trajectory.question_search.weight) == ("rewrite", 1.0)
    [row] = schemas.to_table([trajectory], schemas.TRAJECTORIES).to_pylist()
    assert schemas.to_row(schemas.to_trajectory(row)) == row
    assert rollouts.fail(RolloutTask(question, 0, "default", 7), "engine gone").question_search.hits == ()
