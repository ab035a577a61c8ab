"""The tools of an agent, and those that are refused before anything is started."""

import json
import sys
from pathlib import Path

import pytest

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.config import load
from drag_ray.errors import ConfigError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.tools import TOOLS
from drag_ray.tools.function import Arguments, Function
from drag_ray.tools.registry import load_toolset

OWN_TOOL = '''
from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool

class Weather(Arguments):
    city: str
    """Where."""

TOOL = Tool("{name}", "{description}", Weather, lambda arguments, workspace: Observation("Rain."))
'''


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str, name: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return write


NEEDY = ("python_interpreter", "web_search")
"""Tools that need something beside this package; their own tests have it."""


def test_all_tools_that_ship_can_be_had_together_and_unknown_ones_name_them() -> None:
    names = [function.name for function in load_toolset(tuple(name for name in TOOLS if name not in NEEDY)).functions]
    assert names == ["search_documents", *(name for name in TOOLS if name not in ("search", *NEEDY))]
    with pytest.raises(ConfigError, match=r"agent\.tools: unknown 'browse'\. Known: search, read_page, grep, layout_parsing"):
        load_toolset(("search", "browse"))
    given = ["--agent.protocol", "tools", "--agent.max-iterations", "4", "--agent.tools", "search", "--agent.tools", "grep"]
    assert load(RunConfig, given).agent.tools == ("search", "grep")


def test_a_model_of_the_default_agent_is_shown_what_it_always_was() -> None:
    query = {"type": "string", "description": "Words that the right page is likely to contain."}
    cited = {
        "type": "object",
        "properties": {"file": {"type": "string"}, "page": {"type": "integer"}},
        "required": ["file", "page"],
    }
    answer = {
        "answer": {"type": "string", "description": "The answer, as short as possible."},
        "citations": {"type": "array", "description": "The pages that the answer is taken from.", "items": cited},
    }
    functions = [
        ("search_documents", "Search the document collection and see the best pages.", {"query": query}, ["query"]),
        ("provide_answer", "Give the final answer to the question.", answer, ["answer"]),
    ]
    expected = [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": description,
                "parameters": {"type": "object", "properties": properties, "required": required},
            },
        }
        for name, description, properties, required in functions
    ]
    shown = get_protocol("tools").list_functions(AgentConfig(protocol="tools").load_tools().functions)
    assert json.dumps(shown) == json.dumps(expected)  # in this order of keys: a template writes them as they come


def test_a_tool_of_the_users_is_one_module_and_its_name(write_module) -> None:
    module = write_module(OWN_TOOL.format(name="weather", description="The weather."), "own_weather")
    toolset = load_toolset(("search", "weather"), (module,))
    [_, shown] = [function.describe()["function"] for function in toolset.functions]
    assert (shown["name"], shown["description"]) == ("weather", "The weather.")
    assert shown["parameters"]["properties"] == {"city": {"type": "string", "description": "Where."}}
    assert set(toolset.callers) == {"weather"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (OWN_TOOL.format(name="grep", description="Mine."), "another tool of the name 'grep'"),
        (OWN_TOOL.format(name="search_documents", description="Mine."), "another tool of the name"),
        (OWN_TOOL.format(name="provide_answer", description="Mine."), "another tool of the name"),
        (OWN_TOOL.format(name="two words", description="Mine."), "a name has up to 64 letters"),
        (OWN_TOOL.format(name="weather", description=" "), "no description"),
        ("TOOL = 3", "it declares int as TOOL"),
        ("", "it declares nothing as TOOL"),
        ("import no_such_package", "cannot be imported .ModuleNotFoundError"),
        ("raise RuntimeError('boom')", "cannot be imported .RuntimeError: boom"),
        ("def broken(:", "cannot be imported .SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_used_is_refused_by_name(write_module, text: str, problem: str) -> None:
    name = f"bad_tool_{abs(hash(text))}"
    tool = "two words" if "two words" in text else "weather"
    with pytest.raises(ConfigError, match=problem):
        load_toolset(("search", tool), (write_module(text, name),))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tools": ["grep"]}, "tools lacks search"),
        ({"tools": ["search", "grep", "grep"]}, "tools names grep twice"),
        ({"tools": ["search", "grep"], "protocol": "tags"}, "the protocol tags knows no tools but search"),
        ({"tools": ["search", "grep"], "max_iterations": 1}, "with max_iterations 1"),
    ],
)
def test_tools_that_could_not_be_called_are_refused_with_the_options(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        AgentConfig(**{"protocol": "tools", "max_iterations": 4, **options})  # type: ignore[arg-type]


class _Node(Arguments):
    name: str
    children: "list[_Node] | None" = None


class _Box(Arguments):
    title: str
    """Its title."""


class _Nested(Arguments):
    box: _Box
    """Where."""


def test_nested_arguments_are_shown_without_references_and_circles_are_refused() -> None:
    parameters = Function("mark", "Marks.", _Nested).describe()["function"]["parameters"]
    box = {"type": "object", "description": "Where.", "properties": {"title": {"type": "string", "description": "Its title."}}}
    assert parameters["properties"] == {"box": {**box, "required": ["title"]}}
    with pytest.raises(ConfigError, match="leads to itself"):
        Function("tree", "Trees.", _Node).describe()
