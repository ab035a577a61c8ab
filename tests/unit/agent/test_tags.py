"""Actions in tags: what is read from a reply."""

import time

import pytest

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.types import ActionKind, Evidence

TAGS, RANKING = get_protocol("tags"), get_protocol("ranking")


def test_search_is_read_with_its_reasoning() -> None:
    action = TAGS.parse("<think>The manual says rotor.</think>\n<search> rotor \n speed </search>")
    assert (action.kind, action.query, action.reasoning) == (ActionKind.SEARCH, "rotor speed", "The manual says rotor.")


def test_answer_is_read_with_its_citations() -> None:
    action = TAGS.parse("<answer>340 rpm <cite>a b.pdf#7</cite> <cite>c.pdf#12</cite></answer>")
    assert action.kind is ActionKind.ANSWER
    assert action.answer == "340 rpm"
    assert action.citations == (Evidence("a b.pdf", 7), Evidence("c.pdf", 12))


@pytest.mark.parametrize(
    ("body", "citations"),
    [
        ("17 percent <cite>offer.pdf</cite> <cite>terms.pdf#3</cite>", (Evidence("terms.pdf", 3),)),
        (
            "17 percent <cite>offer.pdf, page 4</cite> <cite>terms.pdf#p5</cite> <cite>plan.pdf#6</cite>",
            (Evidence("plan.pdf", 6),),
        ),
        ("17 percent <cite>offer.pdf#2 <cite> a#b.pdf#3 </cite></cite>", (Evidence("offer.pdf", 2), Evidence("a#b.pdf", 3))),
        ("17 percent <cite>offer.pdf#2", (Evidence("offer.pdf", 2),)),
        ("17 percent <cite>#2</cite><cite></cite><cite>plan.pdf#1234567890</cite>", ()),
    ],
)
def test_a_citation_ends_at_its_own_tag_and_one_that_cannot_be_read_is_left_out(
    body: str, citations: tuple[Evidence, ...]
) -> None:
    action = TAGS.parse(f"<answer>{body}</answer>")
    assert (action.answer, action.citations) == ("17 percent", citations)


@pytest.mark.parametrize("part", ["<search>", "<answer>", "<cite>", "<cite>#1", "</cite>", "<answer><cite>"])
def test_hostile_replies_take_linear_time(part: str) -> None:
    started = time.process_time()
    TAGS.parse(part * 50_000)
    TAGS.parse(f"<answer>{part * 50_000}</answer>")
    RANKING.parse(part * 50_000)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("reply", "reasoning"),
    [
        ("<think>why</think><search>q</search>", "why"),
        ("opened by the template</think><search>q</search>", "opened by the template"),
        ("I look for it. <search>q</search>", "I look for it."),
        ("<search>q</search>", ""),
    ],
)
def test_reasoning_is_found_wherever_it_stands(reply: str, reasoning: str) -> None:
    action = TAGS.parse(reply)
    assert (action.query, action.reasoning) == ("q", reasoning)


def test_of_several_actions_the_first_one_counts() -> None:
    assert TAGS.parse("<search>first</search><search>second</search><answer>third</answer>").query == "first"
    assert TAGS.parse("<answer>340</answer> <search>more</search>").answer == "340"


@pytest.mark.parametrize(
    ("reply", "reasoning"),
    [
        ("<think>perhaps <search>rotor</search>", "perhaps <search>rotor</search>"),
        ("<think>perhaps <answer>340</answer> or", "perhaps <answer>340</answer> or"),
        ("<search>early</search><think>was that right", "was that right"),
    ],
)
def test_nothing_is_read_from_a_reply_that_ends_within_its_reasoning(reply: str, reasoning: str) -> None:
    action = TAGS.parse(reply)
    assert (action.kind, action.query, action.answer, action.reasoning) == (ActionKind.INVALID, "", "", reasoning)
    assert "did not come to its end" in action.problem


def test_search_inside_the_reasoning_is_not_an_action() -> None:
    action = TAGS.parse("<think>perhaps <search>wrong</search>?</think><search>right</search>")
    assert action.query == "right"
    assert TAGS.parse("perhaps <search>wrong</search>?</think><search>right</search>").query == "right"
    assert TAGS.parse("a</think><search>right</search> <think>b</think>").reasoning == "a"


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("rotor speed", "neither"),
        ("", "neither"),
        ("<search>cut off in the mid", "not closed"),
        ("<search>a</answer>", "not closed"),
        ("\x00\ud800<searc", "neither"),
    ],
)
def test_unreadable_replies_are_invalid_and_say_why(reply: str, problem: str) -> None:
    action = TAGS.parse(reply)
    assert action.kind is ActionKind.INVALID
    assert problem in action.problem
