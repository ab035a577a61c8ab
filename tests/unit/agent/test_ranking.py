"""Orders of candidates, as replies write them."""

import pytest

from drag_ray.agent.protocols.ranking import RankingProtocol, read_order
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.types import ActionKind

PROTOCOL = RankingProtocol()


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("[3, 1, 2]", [3, 1, 2]),
        ("[3,1,2]", [3, 1, 2]),
        (" [ 3 ,\n1, 2, ] ", [3, 1, 2]),
        ("[7]", [7]),
        ("[]", []),
        ("[03]", [3]),
        ("3, 1, 2", None),
        ("[3, one]", None),
        ("[3, -1]", None),
        ("[1.5]", None),
        ("[[1], 2]", None),
        ("[,]", None),
        ("[1 2]", None),
        ("[" + "9" * 10 + "]", None),
        ("[__import__('os').system('touch /tmp/x')]", None),
        ("[n for n in range(10**9)]", None),
        ("[1, ²]", None),
        ("[\u0661]", None),
    ],
)
def test_an_order_is_a_list_of_whole_numbers_and_nothing_else(text: str, order: list[int] | None) -> None:
    assert read_order(text) == order


def test_a_reply_is_read_after_its_reasoning() -> None:
    action = PROTOCOL.parse("<think>Perhaps <answer>[2]</answer>, no.</think>\n<answer>[3, 1]</answer> or <answer>[9]</answer>")
    assert (action.kind, action.query) == (ActionKind.SEARCH, "[3, 1]")
    assert action.reasoning == "Perhaps <answer>[2]</answer>, no."


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("The third one.", "no <answer>"),
        ("<answer>[3, 1", "not closed"),
        ("<answer>third</answer>", "expected numbers"),
        ("<think>hm", "did not come to its end"),
    ],
)
def test_what_is_no_order_says_why(reply: str, problem: str) -> None:
    action = PROTOCOL.parse(reply)
    assert action.kind is ActionKind.INVALID
    assert problem in action.problem


def test_a_long_list_that_is_none_is_refused_at_once() -> None:
    assert read_order("[" + "1, " * 200_000 + "x]") is None


def test_a_rendered_order_is_read_back() -> None:
    protocol = get_protocol("ranking")
    action = protocol.parse(protocol.render_search("[2, 1]", "it shows a bridge"))
    assert (action.query, action.reasoning) == ("[2, 1]", "it shows a bridge")
    assert protocol.render_search("[2, 1]").endswith(protocol.stop)
