"""Functions in prompts: templates that do not show them, and how a model behind an endpoint is shown them."""

import json
from pathlib import Path
from typing import Any

import pytest
import trl
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from drag_ray.engine.endpoints.endpoint import write_functions
from drag_ray.engine.models.chat_template import check_functions_shown
from drag_ray.errors import ConfigError

WRITES = "{% for tool in tools or [] %}{{ tool }}{% endfor %}{% for message in messages %}{{ message.content }}{% endfor %}"


def describe(name: str = "grep", description: str = "Finds größe.", **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"file": {"type": "string"}, **properties}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


class Template:
    """A tokenizer that can do no more than render."""

    def __init__(self, template: str) -> None:
        self._template = template

    def apply_chat_template(self, messages: Any, tools: Any, **_: Any) -> str:
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        return ImmutableSandboxedEnvironment().from_string(self._template).render(messages=messages, tools=tools)


@pytest.fixture
def use_template(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def use(template: str) -> str:
        monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_: Template(template))
        return str(tmp_path)

    return use


@pytest.mark.parametrize("template", [WRITES, WRITES.replace("{{ tool }}", "{{ tool | tojson }}")])
def test_a_template_that_writes_functions_out_will_do(use_template, template: str) -> None:
    check_functions_shown(use_template(template), [describe(), describe("read_page")])


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{% for message in messages %}{{ message.content }}{% endfor %}", "does not show 'grep'"),
        (WRITES.replace("{{ tool }}", "{{ tool.function.name }}"), "does not show 'Finds"),
        (WRITES.replace("{{ tool }}", "{{ tool.function.name }} {{ tool.function.description }}"), "does not show 'file'"),
        (WRITES.replace("{{ tool }}", "{{ tool.function.parameters.properties.path.type }}"), "fails on it .UndefinedError"),
    ],
)
def test_a_function_that_the_model_would_not_see_is_refused(use_template, template: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"tool 'grep': .*{problem}"):
        check_functions_shown(use_template(template), [describe()])


@pytest.mark.parametrize(
    "template",
    [
        WRITES.replace("{{ tool }}", "{{ tool.function.name }} {{ tool.function.description }}"),
        WRITES.replace(
            "{{ tool }}", "{{ tool.function.name }} {{ tool.function.description }} {{ tool.function.parameters.required }}"
        ),
    ],
)
def test_a_word_that_stands_elsewhere_in_the_template_is_not_taken_for_an_argument(use_template, template: str) -> None:
    function = describe()
    function["function"]["parameters"] = {"type": "object", "properties": {"e": {"type": "number"}}, "required": ["e"]}
    with pytest.raises(ConfigError, match="does not show 'e'"):
        check_functions_shown(use_template(template), [function])


def test_without_functions_no_model_is_looked_at_and_a_conversation_is_as_it_was() -> None:
    check_functions_shown("no/such-model", ())
    messages = [SYSTEM, ASKED, CALLED]
    assert write_functions(messages, []) == messages


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
