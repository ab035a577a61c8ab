"""Options of tools: of those that ship, and of MCP servers."""

import re
from dataclasses import dataclass, field

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from drag_ray.config import SECRET_ERROR, BaseConfig

_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,63}"


class McpServerConfig(BaseConfig):
    """An MCP server: a command that is started and spoken to over its standard input and output, or an address."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")
    """how agent.tools calls it; the model sees its tools as NAME_TOOL"""
    command: tuple[str, ...] = ()
    """the command with its arguments; every process that calls the tools starts one. It runs with the rights of that process"""
    environment: tuple[str, ...] = ()
    """names of environment variables that the command is given, beside PATH, HOME and the like"""
    address: str = ""
    """address of a server that speaks streamable HTTP, for example https://tools.example.org/mcp; redirects are not followed"""
    key_variable: str = ""
    """name of the environment variable that holds the key of the address (a bearer token), which every process that calls the
    tools must have; empty: the server wants none. The key itself belongs in no option and in no file"""

    @field_validator("key_variable", "environment")
    @classmethod
    def _are_names(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for name in (value,) if isinstance(value, str) else value:
            if name and not re.fullmatch(_VARIABLE, name):
                raise PydanticCustomError(
                    SECRET_ERROR, "expected the name of an environment variable, for example TOOLS_KEY, not what it holds"
                )
        return value

    @model_validator(mode="after")
    def _can_be_reached(self) -> "McpServerConfig":
        if bool(self.command) == bool(self.address):
            raise ValueError("give either the command of the server or its address")
        if self.address and not self.address.startswith(("http://", "https://")):
            raise ValueError("address: expected http:// or https://")
        if self.key_variable and not self.address:
            raise ValueError("key_variable is for an address; name what a command needs in environment")
        return self


class PythonInterpreterConfig(BaseConfig):
    """What the code that a model writes may take, a call each."""

    timeout_s: float = Field(default=10.0, gt=0, le=3600)
    """seconds"""
    memory_mib: int = Field(default=512, ge=64, le=65536)
    """memory"""
    num_parallel: int = Field(default=4, ge=1)
    """calls that run at once in a process; more of them wait, in their own agent.tool_timeout_s"""


@dataclass(frozen=True)
class ToolOptions:
    """The options of the tools that ship."""

    python_interpreter: PythonInterpreterConfig = field(default_factory=PythonInterpreterConfig)
