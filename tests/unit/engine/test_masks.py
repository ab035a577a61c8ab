import pytest

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.engine.models.masks import Mask, find_spans


def pick(reply: str, mask: Mask) -> list[str]:
    return [reply[start:end] for start, end in find_spans(reply, mask, "provide_answer")]


@pytest.mark.parametrize("protocol", ["tags", "tools"])
def test_reasoning_and_search_are_told_apart_in_every_protocol(protocol: str) -> None:
    search = get_protocol(protocol).render_search("rotor AND rpm")
    reply = get_protocol(protocol).render_search("rotor AND rpm", "Limits are in the manual.")
    assert pick(reply, "search_only") == [search]
    assert pick(reply, "search_think") == ["<think>Limits are in the manual.</think>", search]
    assert pick(reply, "assistant") == pick(reply, "none") == [reply]


@pytest.mark.parametrize("protocol", ["tags", "tools"])
def test_an_answer_is_no_search(protocol: str) -> None:
    reply = get_protocol(protocol).render_answer("340 rpm", reasoning="Found it.")
    assert pick(reply, "search_only") == pick(reply, "search_think") == []


def test_an_answer_before_a_search_is_left_out() -> None:
    tools = get_protocol("tools")
    search = tools.render_search("rotor")
    assert pick(tools.render_answer("search_document") + search, "search_only") == [search]


GREP = '{"name": "grep", "arguments": {"text": "rpm"}}'


@pytest.mark.parametrize(
    "call", [f"<tool_call>\n{GREP}\n</tool_call>", f"<tool_call>{GREP}", f"```json\n{GREP}\n```", f"```\n{GREP}", GREP]
)
def test_a_call_of_another_tool_is_learned_as_a_search_is_in_every_form(call: str) -> None:
    reply = f"<think>Where is it?</think>{call}"
    assert pick(reply, "search_only") == [call]
    assert pick(reply, "search_think") == ["<think>Where is it?</think>", call]
    assert pick(reply.replace("grep", "provide_answer"), "search_only") == []


def test_a_search_that_is_not_closed_is_nothing_to_learn() -> None:
    assert pick("<think>Hm.</think><search>rotor", "search_think") == []
    assert pick("", "assistant") == []
