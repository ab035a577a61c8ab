"""Rollouts that are shown the evidence page: it is in what the model is asked with, and in nothing that is kept."""

import asyncio
import dataclasses
import json

import pytest
from factories import build_question
from scripted_engine import ScriptedEngine
from small_index import open_index

from drag_ray.agent.config import AgentConfig, Example
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.rollout import HINT_CHARS, Rollouts, is_quotation, write_hint
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.engine.generate import Generation, Request
from drag_ray.search.searcher import Searcher
from drag_ray.types import ActionKind, Evidence, Page, Trajectory

PAGE = Page("b.pdf", 2, 2, "The gyroplane must not exceed 340 rpm in level flight below two thousand feet.")
QUESTION = build_question(question="How fast may it turn?", evidence=(Evidence("b.pdf", 2),))


class LogprobEngine(ScriptedEngine):
    async def __call__(self, request: Request) -> Generation:
        generation = await super().__call__(request)
        return dataclasses.replace(generation, completion_logprobs=(-0.5,) * len(generation.completion_token_ids))


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    return open_index(tmp_path_factory.mktemp("hints"), [Page("a.pdf", 1, 1, "fuel and oil"), PAGE])


def roll_out(searcher: Searcher, *replies: str, hinted: bool = True) -> tuple[Trajectory, list[Request]]:
    examples = (Example(question="Where is the fuel?", query="fuel"),)
    config = AgentConfig(top_k=2, max_iterations=len(replies), examples=examples)
    engine = LogprobEngine(lambda request: replies[sum(message["role"] == "assistant" for message in request.messages) - 1])
    rollouts = Rollouts(
        config,
        Policy("model"),
        engine,
        SearchEnvironment(searcher, config.top_k, config.depth),
        "index",
    )
    return asyncio.run(rollouts.run(RolloutTask(QUESTION, 0, "default", 7, hinted=hinted))), engine.requests


def test_the_page_precedes_the_question_in_every_prompt_and_is_not_kept(searcher: Searcher) -> None:
    replies = ("<search>fuel</search>", "<search>gyroplane speed</search>", "<answer>340 rpm</answer>")
    trajectory, requests = roll_out(searcher, *replies)
    hint = write_hint(PAGE)
    for request in requests:
        assert request.messages[3]["content"] == f"{hint}\n\nQuestion: {QUESTION.question}"
        assert sum(hint in message["content"] for message in request.messages) == 1
    messages = json.loads(trajectory.messages)
    config = AgentConfig(max_iterations=len(replies), examples=(Example(question="Where is the fuel?", query="fuel"),))
    assert messages[:4] == Prompts(config).opening(QUESTION.question)
    # All that is kept but the hint is what the model was asked with, and the first search did not show the page.
    assert [message for message in messages[:-1] if message not in requests[-1].messages] == [messages[3]]
    assert PAGE.text not in json.dumps(messages[:7])
    assert (trajectory.id, trajectory.provenance.hinted) == ("q1/default/0/hinted", True)


def test_token_ids_of_a_prompt_that_is_not_kept_are_not_kept_either(searcher: Searcher) -> None:
    replies = ("<search>gyroplane</search>", "<answer>x</answer>")
    hinted, _ = roll_out(searcher, *replies)
    own, _ = roll_out(searcher, *replies, hinted=False)
    assert [(turn.reply.prompt_token_ids, turn.reply.completion_logprobs) for turn in hinted.turns] == [((), ())] * 2
    assert [turn.reply.completion_token_ids for turn in hinted.turns] == [turn.reply.completion_token_ids for turn in own.turns]
    assert all(turn.reply.prompt_token_ids and turn.reply.completion_logprobs for turn in own.turns)
    assert not own.provenance.hinted
    assert own.turns[0].ranking.rank_score == hinted.turns[0].ranking.rank_score == 1.0


def test_a_query_that_quotes_the_page_is_refused_and_long_pages_are_shortened(searcher: Searcher) -> None:
    quotation = "<search>must not exceed 340 RPM, in level flight</search>"
    trajectory, _ = roll_out(searcher, quotation, "<search>gyroplane level flight rpm</search>")
    assert [turn.action for turn in trajectory.turns] == [ActionKind.INVALID, ActionKind.SEARCH]
    assert trajectory.turns[0].query == ""
    own, _ = roll_out(searcher, quotation, quotation, hinted=False)
    assert [turn.action for turn in own.turns] == [ActionKind.SEARCH] * 2
    long_page = dataclasses.replace(PAGE, text="x" * 10_000)
    assert write_hint(long_page).count("x") - write_hint(dataclasses.replace(PAGE, text="")).count("x") == HINT_CHARS


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("not exceed 340 rpm in level", True),
        ("speed: NOT exceed (340) rpm\nin level", True),
        ("not exceed 340 rpm in", False),
        ("exceed not 340 rpm in level flight below", True),
        ("not ex\u00adceed \uff13\uff14\uff10 rpm in level", True),
        ("gyroplane rpm limit in level flight below feet", False),
        ("", False),
    ],
)
def test_a_quotation_is_six_words_of_the_page_in_a_row(query: str, expected: bool) -> None:
    assert is_quotation(query, PAGE) is expected
