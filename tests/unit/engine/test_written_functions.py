"""How a model behind an endpoint is shown functions, and what calls returned."""

import json
from pathlib import Path
from typing import Any

import pytest
import trl
from transformers.utils.chat_template_utils import render_jinja_template

from drag_ray.engine.endpoints.endpoint import write_functions

GREP = {"type": "function", "function": {"name": "grep", "description": "Lines with “words”.", "parameters": {"type": "object"}}}
READ = {"type": "function", "function": {"name": "read_page", "description": "A page.", "parameters": {"type": "object"}}}
SYSTEM = {"role": "system", "content": "Search."}
ASKED = {"role": "user", "content": "How fast?"}
CALLED = {"role": "assistant", "content": "<tool_call>...</tool_call>"}


def test_the_system_prompt_shows_each_function_on_a_line() -> None:
    [system, *rest] = write_functions([SYSTEM, ASKED], [GREP, READ])
    told, shown = system["content"].split("\n\n# Tools\n\n")
    assert told == "Search."
    listed = shown[shown.index("<tools>\n") + len("<tools>\n") : shown.index("\n</tools>\n")]
    assert [json.loads(line) for line in listed.splitlines()] == [GREP, READ]
    assert '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' in shown
    assert rest == [ASKED]


def render(messages: list[dict[str, Any]], functions: list[dict[str, Any]] | None) -> str:
    template = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text()
    tools: Any = functions
    [[text], _] = render_jinja_template([messages], tools=tools, chat_template=template, add_generation_prompt=True)
    return text


def test_a_model_of_qwen_is_shown_what_its_own_template_shows() -> None:
    messages = [SYSTEM, ASKED, CALLED, {"role": "tool", "content": "340 rpm"}]
    assert render(write_functions(messages, [GREP, READ]), None) == render(messages, [GREP, READ])


@pytest.mark.parametrize("messages", [[ASKED], []])
def test_without_a_system_prompt_there_is_one_of_functions(messages: list[dict[str, Any]]) -> None:
    [system, *rest] = write_functions(messages, [GREP])
    assert system["role"] == "system"
    assert system["content"].startswith("# Tools\n")
    assert rest == messages


def test_what_calls_returned_is_told_by_the_user_with_its_images() -> None:
    image = {"type": "image", "image": "ab/1.jpg"}
    seen = {"role": "tool", "content": [{"type": "text", "text": "image_1: page"}, image]}
    *_, text, pictured = write_functions([SYSTEM, ASKED, CALLED, {"role": "tool", "content": "340"}, seen], [GREP])
    assert text == {"role": "user", "content": "<tool_response>\n340\n</tool_response>"}
    assert pictured["role"] == "user"
    assert [part.get("text", part.get("image")) for part in pictured["content"]] == [
        *("<tool_response>\n", "image_1: page", "ab/1.jpg", "\n</tool_response>"),
    ]


def test_without_functions_a_conversation_is_as_it_was() -> None:
    messages = [SYSTEM, ASKED, CALLED]
    assert write_functions(messages, []) == messages
