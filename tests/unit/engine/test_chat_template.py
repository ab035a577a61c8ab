"""Functions that a model's chat template does not show."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

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


def test_without_functions_no_model_is_looked_at() -> None:
    check_functions_shown("no/such-model", ())
