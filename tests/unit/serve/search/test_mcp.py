"""The tools at /mcp and those of `drag-ray mcp`, asked by the SDK's own client, with a real index and a scripted engine."""

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from serve_cases import Serve, follow

from drag_ray.cli.main import main
from drag_ray.serve.ingress.key import KEY_VARIABLE

KEY = "a-key-for-this-test-alone"
QUESTION = "How fast may the rotor turn?"
Connect = Callable[[str], AbstractAsyncContextManager[Client]]


reply = follow("<search>rotor speed</search>", "<answer>340 rpm <cite>b.pdf#2</cite></answer>")


@asynccontextmanager
async def over_http(url: str, **options: Any) -> AsyncGenerator[Client]:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, trust_env=False)
    async with http, Client(streamable_http_client(f"{url}/mcp", http_client=http), **options) as client:
        yield client


@asynccontextmanager
async def over_stdio(url: str) -> AsyncGenerator[Client]:
    environment = {**os.environ, KEY_VARIABLE: KEY}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "drag_ray.cli.main", "mcp", "--url", url], env=environment
    )
    async with Client(command) as client:
        yield client


by_transport = pytest.mark.parametrize("connect", [over_http, partial(over_http, mode="legacy"), over_stdio])


@pytest.mark.seconds
@by_transport
async def test_the_tools_search_read_and_answer(serve: Serve, connect: Connect) -> None:
    with serve(reply).listen(KEY) as url:
        async with connect(url) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {"search", "read_page", "ask"}
            assert all(tool.description and tool.output_schema for tool in tools.values())
            assert tools["search"].input_schema["required"] == ["question"]
            found = await call(client, "search", question=QUESTION, top_k=1)
            assert (found["model"], found["query"], len(found["pages"])) == ("tuned", "rotor speed", 1)
            place = {name: found["pages"][0][name] for name in ("file", "page_number")}
            assert place == {"file": "b.pdf", "page_number": 2}
            assert (await call(client, "read_page", **place))["text"].startswith("The rotor turns. Its speed limit")
            answer = await call(client, "ask", question=QUESTION, model="base")
            assert (answer["answer"], answer["citations"][0]["file"], len(answer["turns"])) == ("340 rpm", "b.pdf", 2)


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error
    assert result.structured_content
    return result.structured_content


def read_text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.seconds
@by_transport
async def test_what_cannot_be_done_is_said_to_the_model_that_called(serve: Serve, connect: Connect) -> None:
    with serve(reply).listen(KEY) as url:
        async with connect(url) as client:
            for tool, arguments, complaint in (
                ("search", {}, "question"),
                ("search", {"question": ""}, "expected a text, or images"),
                ("search", {"question": "a" * 61}, "serve.max_question_chars"),
                ("search", {"question": "a", "top_k": 101}, "less than or equal to 100"),
                ("search", {"question": "a", "model": "nobody"}, "the model 'nobody' does not exist here"),
                ("ask", {"question": "a", "model": "nobody"}, "the model 'nobody' does not exist here"),
                ("read_page", {"file": "b.pdf", "page_number": 3}, "not in the index"),
                ("read_page", {"file": "../../etc/passwd", "page_number": 1}, "not in the index"),
                ("read_page", {"file": "b.pdf", "page_number": 10**30}, "not in the index"),
                ("read_page", {"file": "b.pdf", "page_number": "x"}, "page_number"),
                ("shell", {"command": "ls"}, "shell"),
            ):
                result = await client.call_tool(tool, arguments)
                assert result.is_error, arguments
                assert complaint in read_text(result), arguments
            assert not (await client.call_tool("search", {"question": QUESTION})).is_error


async def test_the_tools_need_the_key_and_keep_the_limits_of_the_endpoint(serve: Serve) -> None:
    with serve(reply).listen(KEY) as url:
        async with httpx2.AsyncClient(trust_env=False) as client:
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            assert (await client.post(f"{url}/mcp", json=message)).status_code == 401
            given_key = {"Authorization": f"Bearer {KEY}"}
            assert (await client.post(f"{url}/mcp", content=b" " * (2**20 + 1), headers=given_key)).status_code == 413
            assert (await client.post(f"{url}/mcp", content=b"no JSON", headers=given_key)).json()["error"]["code"] == 400
            headers = given_key | {"Accept": "application/json, text/event-stream"}
            answer = await client.post(f"{url}/mcp", json=message, headers=headers)
            assert (answer.status_code, answer.headers.get("mcp-session-id")) == (
                200,
                None,
            )  # nothing is kept that many could fill
            for method, path, status in (("GET", "", 405), ("DELETE", "", 405), ("POST", "//", 404), ("POST", "/x", 404)):
                assert (await client.request(method, f"{url}/mcp{path}", headers=given_key)).status_code == status


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
@pytest.mark.parametrize("accept", [None, "", "*/*", "application/json"])
async def test_clients_may_leave_out_what_they_accept_and_say_null(serve: Serve, path: str, accept: str | None) -> None:
    client_info = {"name": "client", "version": "1"}
    started = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client_info}
    nulls = {"question": QUESTION, "top_k": None, "model": None}
    headers = [("Content-Type", "application/json"), ("Authorization", f"Bearer {KEY}")]
    headers += [] if accept is None else [("Accept", accept)]
    with serve(reply).listen(KEY) as url:
        async with httpx2.AsyncClient(trust_env=False) as client:
            del client.headers["accept"]

            async def post(method: str, params: dict[str, Any] | None) -> dict[str, Any]:
                body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
                answer = await client.post(url + path, content=body, headers=headers)
                assert answer.status_code == 200, answer.text
                return answer.json()["result"]

            assert (await post("initialize", started))["serverInfo"]["name"] == "drag_ray"
            assert len((await post("tools/list", None))["tools"]) == 3
            assert (await post("tools/call", {"name": "search", "arguments": nulls}))["structuredContent"]["pages"]
            without = await post("tools/call", {"name": "search", "arguments": None, "_meta": None})
            assert "question" in without["content"][0]["text"]


def test_a_bridge_to_nowhere_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--url", "http://127.0.0.1:9"]) == 1
    assert "no endpoint answers" in capsys.readouterr().err
