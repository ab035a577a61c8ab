"""The tools of an MCP server as tools of an agent.

A process has one connection to each server, in an event loop of its own beside that of the rollouts, and connects again when it
is lost.
"""

import asyncio
import os
import re
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

from drag_ray.corpus.question_images import decode_data_url
from drag_ray.errors import ConfigError, DataError, ToolError
from drag_ray.storage.json_text import parse_json
from drag_ray.tools.config import McpServerConfig
from drag_ray.tools.function import Arguments, simplify_schema
from drag_ray.tools.images.rollout_images import MAX_PIXELS
from drag_ray.tools.observation import Observation, ObservedImage
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

_CONNECT_S = 30.0
_LONGEST_CALL_S = 600.0
_MAX_BYTES = 64 * 2**20
"""of one answer over HTTP, unpacked"""
_MAX_TOOLS = 200
_MAX_NAME = 64
T = TypeVar("T")


@dataclass(frozen=True)
class MountedTool(Tool):
    """A tool of an MCP server. What its arguments are is the server's to say, and to check. `schema`: JSON schema of the
    arguments, without references."""

    schema: dict[str, Any]

    def read_arguments(self, arguments: str) -> Any:
        """The arguments, whatever they are."""
        return parse_json(arguments)

    def _build_parameters(self) -> dict[str, Any]:
        try:
            return simplify_schema(self.schema)
        except (RecursionError, ValueError) as error:
            raise ConfigError(f"tool {self.name!r}: its arguments have no JSON schema that can be shown: {error}") from None


@cache
def connect(config: McpServerConfig) -> "McpServer":
    """The one connection of this process to a server, which is made with the first question."""
    return McpServer(config)


class McpServer:
    """A connection to an MCP server. Its methods block, and may be called by many threads."""

    def __init__(self, config: McpServerConfig) -> None:
        self._config = config
        self._loop = _start_loop()
        self._client: Any = None
        self._connecting = asyncio.Lock()

    def mount(self) -> list[Tool]:
        """The tools of the server, under names of theirs. Raises ConfigError where the server cannot be reached, or does not say
        what it has."""
        name = self._config.name
        try:
            listed = self._ask(_list_tools, _CONNECT_S)
        except ToolError as error:
            raise ConfigError(f"agent.mcp_servers: {error}") from None
        return [
            MountedTool(
                name=re.sub(r"[^A-Za-z0-9_-]", "_", f"{name}_{tool.name}")[:_MAX_NAME],
                description=tool.description or f"The tool {tool.name} of {name}.",
                arguments=Arguments,
                run=partial(self._call, tool.name),
                schema=tool.input_schema,
                shows_images=self._config.shows_images,
            )
            for tool in listed
        ]

    def _call(self, name: str, arguments: dict[str, Any], workspace: Workspace) -> Observation:
        result = self._ask(lambda client: client.call_tool(name, arguments, read_timeout_seconds=_LONGEST_CALL_S))
        shown = [part for part in result.content if part.type == "image" and self._config.shows_images]
        text = "\n".join(_to_text(part) for part in result.content if part not in shown)
        if result.is_error:
            raise ToolError(text or "the call failed, and the server gives no reason")
        return Observation(text, tuple(ObservedImage(_to_picture(part), f"from {self._config.name}") for part in shown))

    def _ask(self, ask: Callable[[Any], Awaitable[T]], timeout_s: float | None = None) -> T:
        """The server's answer. Raises ToolError where it cannot be reached, or answers otherwise than the protocol says."""
        asked = asyncio.run_coroutine_threadsafe(self._ask_in_loop(ask), self._loop)
        try:
            return asked.result(timeout_s)
        except ToolError:
            raise
        except TimeoutError:
            asked.cancel()
            raise ToolError(f"the server {self._config.name!r} did not answer within {timeout_s:g} s") from None
        except Exception as error:  # of the SDK, of its transports and of what they run on
            raise ToolError(f"the server {self._config.name!r} does not answer ({_name_cause(error)})") from error

    async def _ask_in_loop(self, ask: Callable[[Any], Awaitable[T]]) -> T:
        from mcp.shared.exceptions import MCPError
        from mcp.types import CONNECTION_CLOSED

        async with self._connecting:
            if self._client is None:
                connected: asyncio.Future[Any] = self._loop.create_future()
                self._holding = asyncio.create_task(self._hold(connected))
                self._client = await asyncio.wait_for(connected, _CONNECT_S)
        client = self._client
        try:
            return await ask(client)
        except Exception as error:
            if isinstance(error, MCPError) and error.error.code != CONNECTION_CLOSED:
                raise ToolError(f"the server {self._config.name!r} refuses: {error}") from error  # it answers: it is still there
            if self._client is client:
                self._holding.cancel()
                self._client = None
            raise

    async def _hold(self, connected: "asyncio.Future[Any]") -> None:
        """Keep a connection open, in the task that opened it, until it is given up."""
        try:
            async with self._open() as client:
                connected.set_result(client)
                await asyncio.Event().wait()
        except Exception as error:
            if not connected.done():
                connected.set_exception(error)

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Any]:
        from mcp import Client, StdioServerParameters
        from mcp.client.streamable_http import streamable_http_client

        from drag_ray.engine.endpoints.bounded_client import BoundedClient

        config = self._config
        if config.command:
            environment = {name: os.environ[name] for name in config.environment if name in os.environ}
            command, *arguments = config.command
            async with Client(StdioServerParameters(command=command, args=arguments, env=environment)) as client:
                yield client
            return
        # A proxy of the environment would see the key.
        async with (
            BoundedClient(_MAX_BYTES, _LONGEST_CALL_S, headers=self._read_headers(), trust_env=False) as http,
            Client(streamable_http_client(config.address, http_client=http)) as client,
        ):
            yield client

    def _read_headers(self) -> dict[str, str]:
        variable = self._config.key_variable
        if not variable:
            return {}
        key = os.environ.get(variable, "")
        if not key:
            raise ToolError(f"the environment variable {variable} of the server {self._config.name!r} is not set here, or empty")
        return {"Authorization": f"Bearer {key}"}


async def _list_tools(client: Any) -> list[Any]:
    page = await client.list_tools()
    tools: list[Any] = page.tools
    while page.next_cursor and len(tools) <= _MAX_TOOLS:
        page = await client.list_tools(cursor=page.next_cursor)
        tools = [*tools, *page.tools]
    if len(tools) > _MAX_TOOLS:
        raise ToolError(f"the server has more than {_MAX_TOOLS} tools")
    return tools


def _to_text(part: Any) -> str:
    return part.text if part.type == "text" else f"[{part.type}, which is not shown]"


def _to_picture(part: Any) -> Any:
    """The picture of a part, as large as a model may be shown it. Raises ToolError where it is none."""
    from drag_ray.corpus.picture import read_picture

    try:
        return read_picture(decode_data_url(f"data:image;base64,{part.data}"), MAX_PIXELS)
    except DataError as error:
        raise ToolError(f"the server returned a picture that cannot be shown: {error}") from None


def _name_cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {str(error)[:200]}"


@cache
def _start_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process's connections, in a thread that nobody waits for at its end."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mcp", daemon=True).start()
    return loop
