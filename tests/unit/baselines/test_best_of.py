"""Best of n: which of the drawn replies is chosen."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.baselines.best_reply import BestReply, draw_first
from drag_ray.engine.generate import Generation, Request
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.scripted import ScriptedEngine

REQUEST = Request(
    ({"role": "user", "content": "Question: fast?"},), PRESETS["high_temp"], max_tokens=9, seed=7, stop=("</search>",)
)


class Scores:
    """Likes long replies, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []

    def __call__(self, messages: object, replies: Sequence[str], tools: object) -> list[float]:
        assert messages == REQUEST.messages
        self.asked.append(replies)
        return [float(len(reply)) for reply in replies]


def choose(replies: list[str]) -> tuple[Generation, Scores, ScriptedEngine]:
    waiting = iter(replies)
    engine, scores = ScriptedEngine(lambda _: next(waiting)), Scores()
    best_reply = BestReply(engine, get_protocol("tags"), len(replies), lambda: scores)
    return asyncio.run(best_reply(REQUEST)), scores, engine


def test_the_reply_with_the_highest_reward_is_chosen_as_it_was_drawn() -> None:
    reply, scores, engine = choose(["<search>rotor</search>", "Well. <search>rotor limit</search>", "<search>fuel</search>"])
    assert reply.text == "Well. <search>rotor limit</search>"
    assert bytes(reply.completion_token_ids).decode() == reply.text
    assert scores.asked == [["<search>rotor</search>", "<search>rotor limit</search>", "<search>fuel</search>"]]
    assert len({request.seed for request in engine.requests}) == 3
    assert [replace(request, seed=REQUEST.seed) for request in engine.requests] == [REQUEST] * 3


def test_replies_that_do_not_search_are_not_chosen_and_equal_ones_scored_once() -> None:
    reply, scores, _ = choose(
        ["I would look for everything there is", "<search>a</search>", "<search>a</search>", "<search>bc</search>"]
    )
    assert reply.text == "<search>bc</search>"
    assert scores.asked == [["<search>a</search>", "<search>bc</search>"]]


def test_without_a_choice_nothing_is_scored() -> None:
    assert choose(["nothing", "<search>a</search>", "<search>a</search>"])[0].text == "<search>a</search>"
    reply, scores, _ = choose(["nothing", "at all"])
    assert (reply.text, scores.asked) == ("nothing", [])


def test_a_single_draw_is_the_first_of_several() -> None:
    several, engine = choose(["<search>a</search>"] * 3)[2].requests, ScriptedEngine(lambda _: "nothing")
    assert asyncio.run(draw_first(engine)(REQUEST)).text == "nothing"
    assert engine.requests == several[:1]
