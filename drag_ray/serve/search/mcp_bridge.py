"""The tools of a running endpoint for programs that speak the Model Context Protocol over standard input and output."""

from typing import Any

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult

from drag_ray import __version__
from drag_ray.engine.endpoints.bounded_client import BoundedClient
from drag_ray.serve.client import EndpointClient
from drag_ray.serve.search.mcp_tools import MCP_PATH

_MAX_BYTES = 64 * 2**20
_TIMEOUT_S = 600.0


async def run_bridge(endpoint: EndpointClient) -> None:
    """Pass what comes from standard input on to an endpoint, and what it answers to standard output, until the input ends.

    Raises:
        ServeError: no endpoint answers, or it does not take the key.
    """
    endpoint.check()
    # A proxy of the environment could not reach the loopback address, and would see the key.
    http = BoundedClient(_MAX_BYTES, _TIMEOUT_S, headers=endpoint.headers, trust_env=False)
    async with http, Client(streamable_http_client(endpoint.url + MCP_PATH, http_client=http)) as client:
        server = _build_server(client)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


def _build_server(client: Client) -> Server[Any]:
    """A server that has the tools of the one that the client is connected to."""

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return await client.list_tools()

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        return await client.call_tool(params.name, params.arguments)

    return Server(
        "drag_ray", version=__version__, instructions=client.instructions, on_list_tools=list_tools, on_call_tool=call_tool
    )
