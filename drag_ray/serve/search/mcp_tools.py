"""The search service as tools of the Model Context Protocol, over streamable HTTP at /mcp, or standard input and output.

No session is kept: each request stands for itself, so that any replica can answer it, and an endpoint that starts anew loses
nothing. Clients may leave out what they have no wish about, or say null.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, ToolAnnotations
from pydantic import BaseModel, Field
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from drag_ray import __version__
from drag_ray.engine.endpoints.bounded_client import BoundedClient
from drag_ray.serve.client import EndpointClient
from drag_ray.serve.ingress.guard import MCP_PATHS, replay
from drag_ray.serve.ingress.limits import RefusalError, parse_body
from drag_ray.serve.search.messages import (
    MAX_TOP_K,
    Answer,
    AskAnswer,
    AskRequest,
    PageAnswer,
    SearchAnswer,
    SearchRequest,
    read_request,
)
from drag_ray.serve.search.search_service import SearchService

_PATH = MCP_PATHS[0]
_MAX_BYTES = 64 * 2**20
_TIMEOUT_S = 600.0
_INSTRUCTIONS = (
    "Search a private collection of documents. `search` takes a question in plain words and returns the best pages with part of "
    "their text, `read_page` the whole text of a page, `ask` lets an agent search and answer with the pages that say so."
)
_Question = Annotated[str, Field(description="what somebody wants to know, in plain words; empty only beside images")]
_Images = Annotated[list[str] | None, Field(description="pictures that the question is about, as data: URLs; null for none")]
_Model = Annotated[
    str, Field(description="base model or adapter that searches, `question` for none; empty for the endpoint's own choice")
]
_TopK = Annotated[int | None, Field(description=f"pages to return, 1 to {MAX_TOP_K}; null for as many as are evaluated")]
_File = Annotated[str, Field(description="file of a page, as `search` names it")]
_PageNumber = Annotated[int, Field(description="number of the page, counted from 1")]

_Filter = Annotated[
    dict[str, Any] | None,
    Field(
        description="what the metadata of documents are to meet, a value, a list of which one is enough, or eq, any, all, gt, "
        'gte, lt, lte for a column: {"department": "sales", "date": {"gte": "2024-01-01"}}; null for all'
    ),
]
FindService = Callable[[Request], Awaitable[SearchService]]

AnswerT = TypeVar("AnswerT", bound=BaseModel)
Arguments = ParamSpec("Arguments")


def add_mcp_route(app: Any, find_service: FindService) -> None:
    """Add /mcp to a Starlette application; it answers during the application's lifespan. `find_service` gives the search service
    for a request, or raises a RefusalError where there is none."""
    server = _build_server(find_service)
    # What is answered by what name is the guard's to say.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    mounted = server.streamable_http_app(
        streamable_http_path=_PATH, json_response=True, stateless_http=True, transport_security=security
    )
    # Without sessions there is no stream to listen to and none to end, so POST is all.
    [transport] = [route.endpoint for route in mounted.routes if isinstance(route, Route)]
    app.router.routes.extend(Route(path, _LenientTransport(transport), methods=["POST"]) for path in MCP_PATHS)
    enter_app = app.router.lifespan_context

    @asynccontextmanager
    async def run_both(started: Any) -> AsyncGenerator[Any]:
        async with enter_app(started) as state, server.session_manager.run():
            yield state

    app.router.lifespan_context = run_both


class _LenientTransport:
    """ASGI application in front of the SDK's, which refuses requests without an Accept header, and null for what is optional."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = _leave_out_nulls(parse_body(await Request(scope, receive).body()))
        headers = MutableHeaders(scope=scope)
        headers["accept"] = headers.get("accept") or "*/*"
        await self._app(scope, replay(json.dumps(message).encode(), receive), send)


def _leave_out_nulls(message: dict[str, Any]) -> dict[str, Any]:
    """A JSON-RPC message without nulls among its parameters and the arguments of its call, or in place of either."""
    params = message.get("params")
    if isinstance(params, dict):
        params = _list_given({**params, "arguments": _list_given(params.get("arguments"))})
    rest = {name: value for name, value in message.items() if name != "params"}
    return rest if params is None else {**rest, "params": params}


def _list_given(values: Any) -> Any:
    return {name: value for name, value in values.items() if value is not None} if isinstance(values, dict) else values


def _build_server(find_service: FindService) -> MCPServer[Any]:
    """The tools of a search service."""
    server: MCPServer[Any] = MCPServer("drag_ray", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")

    async def find(context: Context) -> SearchService:
        request = context.request_context.request
        assert isinstance(request, Request)
        return await find_service(request)

    async def search(
        context: Context,
        question: _Question,
        top_k: _TopK = None,
        model: _Model = "",
        filter: _Filter = None,
        images: _Images = None,
    ) -> SearchAnswer:
        """Find the pages of the collection that answer a question, best first."""
        fields = {"question": question, "top_k": top_k, "model": model, "filter": filter, "images": images}
        request = read_request(SearchRequest, fields)
        return await (await find(context)).search(request)

    async def read_page(context: Context, file: _File, page_number: _PageNumber) -> PageAnswer:
        """The whole text of a page."""
        return await (await find(context)).read_page(file, page_number)

    async def ask(
        context: Context, question: _Question, model: _Model = "", filter: _Filter = None, images: _Images = None
    ) -> AskAnswer:
        """Let an agent search the collection and answer a question, with the pages that it cites."""
        request = read_request(AskRequest, {"question": question, "model": model, "filter": filter, "images": images})
        *_, answer = [answer async for answer in (await find(context)).ask(request)]
        assert isinstance(answer, AskAnswer)
        return answer

    tools: list[Callable[..., Awaitable[Answer]]] = [search, read_page, ask]
    for tool in tools:
        server.add_tool(_refusing(tool), annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    return server


def _refusing(tool: Callable[Arguments, Awaitable[AnswerT]]) -> Callable[Arguments, Awaitable[AnswerT]]:
    """A tool whose refusals the model that calls it can read."""

    @wraps(tool)
    async def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> AnswerT:
        try:
            return await tool(*args, **kwargs)
        except RefusalError as refusal:
            raise ToolError(str(refusal)) from refusal

    return call


async def run_bridge(endpoint: EndpointClient) -> None:
    """Pass what comes from standard input on to an endpoint, and what it answers to standard output, until the input ends. Raises
    ServeError where no endpoint answers, or it does not take the key."""
    endpoint.check()
    # A proxy of the environment could not reach the loopback address, and would see the key.
    http = BoundedClient(_MAX_BYTES, _TIMEOUT_S, headers=endpoint.headers, trust_env=False)
    async with http, Client(streamable_http_client(endpoint.url + _PATH, http_client=http)) as client:
        server = _build_passing_server(client)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


def _build_passing_server(client: Client) -> Server[Any]:
    """A server that has the tools of the one that the client is connected to."""

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return await client.list_tools()

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        return await client.call_tool(params.name, params.arguments)

    return Server(
        "drag_ray", version=__version__, instructions=client.instructions, on_list_tools=list_tools, on_call_tool=call_tool
    )
