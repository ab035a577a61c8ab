"""Tools of an agent: found by name, here and in modules of the user's, and checked before anything is started."""

import inspect
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from drag_ray import tools
from drag_ray.errors import ConfigError
from drag_ray.tools import TOOLS
from drag_ray.tools.calls import ToolCaller
from drag_ray.tools.config import McpServerConfig, ToolOptions
from drag_ray.tools.function import Function
from drag_ray.tools.mcp_server import connect
from drag_ray.tools.search import ANSWER
from drag_ray.tools.tool import Tool
from drag_ray.variants import import_own, load_variant

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Toolset:
    """The functions of an agent in the order in which its model is shown them, `search` among them. `callers`: of those that look
    something up, by name."""

    functions: tuple[Function, ...]
    callers: Mapping[str, ToolCaller]

    def check_index(self, index_dir: Path) -> None:
        """ConfigError where the folder of an index stage lacks what one of them looks at."""
        for function in self.functions:
            if isinstance(function, Tool):
                function.check_index(index_dir)

    @property
    def shows_images(self) -> bool:
        """True if the model may be shown images by one of them."""
        return any(isinstance(function, Tool) and function.shows_images for function in self.functions)


@cache
def load_toolset(
    names: tuple[str, ...],
    modules: tuple[str, ...] = (),
    servers: tuple[McpServerConfig, ...] = (),
    options: ToolOptions = ToolOptions(),  # noqa: B008 (it is frozen)
) -> Toolset:
    """The tools of these names; the same ones for the same names, as long as the process lives.

    The name of a server stands for all of its tools. Only servers that are named are asked. Raises ConfigError where a module
    cannot be imported or declares no tool, a server does not answer, a name is unknown or that of two tools, a tool needs what is
    not there, or what it says of itself cannot be shown to a model."""
    by_name: dict[str, list[Function]] = {name: [_load_shipped(name, options)] if name in names else [] for name in TOOLS}
    for module in modules:
        tool = _load_module(module)
        taken = [function.name for function in (ANSWER, *(found for known in by_name.values() for found in known))]
        if tool.name in by_name or tool.name in taken:
            raise ConfigError(f"agent.tool_modules {module!r}: there is another tool of the name {tool.name!r}. Rename it.")
        by_name[tool.name] = [tool]
    for server in servers:
        if server.name in by_name:
            raise ConfigError(f"agent.mcp_servers: {server.name!r} is the name of something else too. Rename it.")
        by_name[server.name] = list[Function](connect(server).mount()) if server.name in names else []  # pyright: ignore[reportArgumentType] (it is frozen)
    if unknown := [name for name in names if name not in by_name]:
        raise ConfigError(
            f"agent.tools: unknown {', '.join(map(repr, unknown))}. Known: {', '.join(by_name)}. Name the module of "
            "a tool of yours in agent.tool_modules, and a server in agent.mcp_servers."
        )
    functions = [tool for name in names for tool in by_name[name]]
    _check(functions)
    return Toolset(tuple(functions), {tool.name: ToolCaller(tool) for tool in functions if isinstance(tool, Tool)})


def find_source(module: str) -> Path:
    """The file of a module that declares a tool. Raises ConfigError where it cannot be imported, or declares none."""
    _load_module(module)
    return Path(inspect.getfile(sys.modules[module]))


def _load_shipped(name: str, options: ToolOptions) -> Function:
    """A tool that ships, for an agent that names it: it may need what is not there."""
    module = load_variant(tools, name)
    return module.make_tool(options) if hasattr(module, "make_tool") else module.TOOL


def _load_module(name: str) -> Tool:
    option = f"agent.tool_modules {name!r}"
    tool = getattr(import_own(name, option, "calls the tool"), "TOOL", None)
    if not isinstance(tool, Tool):
        got = "nothing" if tool is None else f"{type(tool).__name__}"
        raise ConfigError(f"{option}: it declares {got} as TOOL, expected a drag_ray.tools.tool.Tool.")
    return tool


def _check(functions: Sequence[Function]) -> None:
    names = Counter(function.name for function in (*functions, ANSWER))
    if twice := [name for name, count in names.items() if count > 1]:
        raise ConfigError(f"agent.tools: there are several tools of the name {twice[0]!r}. Leave one of them out.")
    for function in functions:
        if not _NAME.fullmatch(str(function.name)):
            raise ConfigError(
                f"tool {function.name!r}: a name has up to 64 letters, digits, `_` and `-`, and begins with a letter. Rename it."
            )
        if not str(function.description).strip():
            raise ConfigError(f"tool {function.name!r}: it has no description, from which the model learns what it does.")
        function.describe()
