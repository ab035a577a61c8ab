"""Calls in the forms in which models write them."""

import json
import time

import pytest
from pydantic import ValidationError

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.written_call import CallError, find_call, render_call

CALL = '{"name": "grep", "arguments": {"file": "a.pdf"}}'


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{CALL}</tool_call>",
        f"I look.\n<tool_call>\n{CALL}\n",
        f"<tool_call>{CALL} and then I read on</tool_call>",
        f"<tool_call>{CALL}<|im_end|>",
        f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>",
        f"So:\n```json\n{CALL}\n```\nThat finds it.",
        f"```\n{CALL}",
        f" {CALL}\nDone.",
        '{"name": "grep", "parameters": {"file": "a.pdf"}}',
        f"```\nplain text\n```\n```json\n{CALL}\n```",
        f"<tool_call>\n{CALL[:-1]}\n</tool_call>",
        f"<tool_call>{CALL[:-2]}</tool_call>",
        f"```json\n{CALL[:-1]}\n```",
        CALL[:-1],
    ],
)
def test_a_call_is_read_in_every_form_that_says_one(text: str) -> None:
    call = find_call(text)
    assert (call.name, call.arguments) == ("grep", {"file": "a.pdf"})


def test_texts_of_a_call_may_hold_line_ends_and_the_words_before_it_end_where_it_begins() -> None:
    written = '<tool_call>{"name": "run", "arguments": {"code": "a = [1\n]\n\tprint(\\"}\\")"}</tool_call>'
    assert find_call(written).arguments == {"code": 'a = [1\n]\n\tprint("}")'}
    said = json.dumps(written[len("<tool_call>") : -len("</tool_call>")] + "}")
    assert find_call(f'{{"name": "run", "arguments": {said}}}').arguments["name"] == "run"  # OpenAI's form: arguments as a text
    text = f"I look.\n```json\n{CALL}\n```"
    assert text[: find_call(text).start] == "I look.\n"


@pytest.mark.parametrize("part", ['{"a": ', "[", '"', '\\"', '{"a": "\\', "{}", "]}", '{"a": [', " ", "```", '"\\"'])
@pytest.mark.parametrize("end", ["", "}", '"'])
def test_hostile_calls_take_linear_time(part: str, end: str) -> None:
    started = time.process_time()
    for frame in ("<tool_call>{}</tool_call>", "{}", "```json\n{}\n```"):
        with pytest.raises(CallError):
            find_call(frame.replace("{}", '{"name": ' + part * 50_000 + end))
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('The page says {"name": "grep", "arguments": {}}', "no <tool_call>"),
        ('```json\n{"rpm": 340}\n```', "no <tool_call>"),
        ('{"name": "rotor"}', "no <tool_call>"),
        ("```\n" * 50_000, "no <tool_call>"),
        ('<tool_call>{"name": "grep", "argu', "not closed"),
        ('<tool_call>{"name": "read_page", "arguments": {"page": 12', "not closed"),  # or 123
        ('<tool_call>{"name": "grep", "arguments": {"file": "a.pdf}', "not closed"),
        ("<tool_call>{'name': 'grep'}</tool_call>", "not JSON"),
        ('<tool_call>{"name": "grep", "arguments": "["}</tool_call>', "arguments is not JSON"),
    ],
)
def test_what_says_none_is_refused(text: str, problem: str) -> None:
    with pytest.raises(CallError, match=problem):
        find_call(text)


def test_the_form_of_a_forced_call_is_that_of_a_written_one_and_ends_texts() -> None:
    agent = AgentConfig(protocol="tools", forced_calls=True, thinking=False, max_iterations=2, tools=("search", "grep"))
    calls = json.loads(Prompts(agent).reply_form)["format"]["elements"]
    for call, name in zip(calls, ("search_documents", "grep", "provide_answer"), strict=True):
        assert call["begin"] + "{}" + call["end"] == render_call(name, {})
    search, grep, answer = (call["content"]["json_schema"]["properties"] for call in calls)
    assert search["query"]["maxLength"] == answer["citations"]["items"]["properties"]["file"]["maxLength"] == 400
    assert grep["text"]["maxLength"] == 200  # its own
    assert Prompts(agent.model_copy(update={"forced_calls": False})).reply_form == ""


@pytest.mark.parametrize(("options", "problem"), [({"protocol": "tags"}, "has no calls"), ({"thinking": True}, "no room")])
def test_calls_are_forced_only_where_there_are_some_and_nothing_precedes(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        AgentConfig(**{"protocol": "tools", "thinking": False, "forced_calls": True, **options})  # type: ignore[arg-type]
