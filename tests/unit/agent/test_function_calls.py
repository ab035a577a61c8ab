"""Actions as function calls: what is read from a reply."""

import json

import pytest

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.types import ActionKind, Evidence

TOOLS = get_protocol("tools")


def call(name: str, arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def search(query: str) -> str:
    return call("search_documents", {"query": query})


def test_a_search_is_read_with_its_reasoning() -> None:
    action = TOOLS.parse("<think>The manual says rotor.</think>\n\n" + search(" rotor \n speed "))
    assert (action.kind, action.query, action.reasoning) == (ActionKind.SEARCH, "rotor speed", "The manual says rotor.")


@pytest.mark.parametrize(
    ("reply", "reasoning"),
    [
        ("opened by the template</think>\n" + search("q"), "opened by the template"),
        ("I look for it.\n" + search("q"), "I look for it."),
        ("<think>perhaps " + search("wrong") + "</think>" + search("q"), f"perhaps {search('wrong')}"),
        (search("q") + search("second"), ""),
    ],
)
def test_the_first_call_after_the_reasoning_counts(reply: str, reasoning: str) -> None:
    action = TOOLS.parse(reply)
    assert (action.query, action.reasoning) == ("q", reasoning)


def test_arguments_may_be_written_as_a_text() -> None:
    assert TOOLS.parse(call("search_documents", json.dumps({"query": "rotor"}))).query == "rotor"


def test_an_answer_is_read_with_the_citations_that_can_be_read() -> None:
    cited = [{"file": "a.pdf", "page": 7}, {"file": "b.pdf", "page": "12"}, {"file": "c.pdf"}, "d.pdf", {"file": 3, "page": -1}]
    action = TOOLS.parse(call("provide_answer", {"answer": ["340", "rpm"], "citations": cited}))
    assert action.kind is ActionKind.ANSWER
    assert action.answer == "340, rpm"
    assert action.citations == (Evidence("a.pdf", 7), Evidence("b.pdf", 12))


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("rotor speed", "no <tool_call>"),
        ("", "no <tool_call>"),
        ('<tool_call>{"name": "search_documents", ', "not closed"),
        ("<tool_call>rotor</tool_call>", "not JSON"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "not JSON"),
        ("<tool_call>[1]</tool_call>", "not a JSON object"),
        (call("search_documents", [1]), "arguments is not a JSON object"),
        (call("search_documents", "{"), "arguments is not JSON"),
        ("<think>perhaps " + search("rotor"), "did not come to its end"),
        (call("search_documents", {}), "needs a query"),
        (call("search_documents", {"query": 3}), "needs a query"),
        (call("provide_answer", {"answer": None}), "needs an answer"),
        (call("delete_everything", {}), "no function 'delete_everything'"),
    ],
)
def test_unreadable_replies_are_invalid_and_say_why(reply: str, problem: str) -> None:
    action = TOOLS.parse(reply)
    assert action.kind is ActionKind.INVALID
    assert problem in action.problem
