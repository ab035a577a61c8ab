"""Tools of MCP servers, real ones: over standard input and output, and over HTTP with a key."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import mcp_tool_server
import pytest
import uvicorn
from pydantic import ValidationError

from drag_ray.agent.config import AgentConfig
from drag_ray.corpus.image_store import ImageStores
from drag_ray.errors import ConfigError
from drag_ray.tools import mcp_server
from drag_ray.tools.calls import CallLimits, CallOutcome
from drag_ray.tools.config import McpServerConfig
from drag_ray.tools.images.rollout_images import RolloutImages
from drag_ray.tools.registry import Toolset, load_toolset
from drag_ray.tools.workspace import Workspace

COMMAND = (sys.executable, mcp_tool_server.__file__)
LOCAL = McpServerConfig(name="local", command=COMMAND, environment=("SHARED_NAME",))
LIMITS = CallLimits(timeout_s=30, max_chars=1000)
KEY = "a-key-for-this-test-alone"


async def call(toolset: Toolset, workspace: Workspace, tool: str, /, timeout_s: float = 30, **arguments: object) -> CallOutcome:
    return await toolset.callers[tool].call(json.dumps(arguments), workspace, CallLimits(timeout_s, LIMITS.max_chars))


@pytest.fixture(scope="module")
def toolset() -> Toolset:
    return load_toolset(("search", "local"), (), (LOCAL,))


@pytest.mark.seconds
def test_the_tools_of_a_server_are_functions_under_its_name(toolset: Toolset) -> None:
    shown = {function.name: function.describe()["function"] for function in toolset.functions}
    assert list(shown)[:3] == ["search_documents", "local_add", "local_refuse"]
    assert shown["local_add"]["description"] == "Adds two numbers."
    assert shown["local_add"]["parameters"] == {
        "type": "object",
        "properties": {"first": {"type": "integer"}, "second": {"type": "integer"}},
        "required": ["first", "second"],
    }


@pytest.mark.seconds
async def test_calls_reach_the_server_and_what_it_refuses_is_an_error(toolset: Toolset, workspace: Workspace) -> None:
    assert (await call(toolset, workspace, "local_add", first=2, second=3)).text == "5"
    assert "not today" in (await call(toolset, workspace, "local_refuse")).error
    assert "second" in (await call(toolset, workspace, "local_add", first=2)).error
    flooded = await call(toolset, workspace, "local_flood")
    assert flooded.text.endswith("[cut: the first 1,000 of 5,000,000 characters]")


@pytest.mark.seconds
async def test_a_server_sees_named_variables_alone(
    toolset: Toolset, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARED_NAME", "shared")
    monkeypatch.setenv("OTHER_SECRET", KEY)
    await call(toolset, workspace, "local_die")  # the next one is started with this environment
    assert (await call(toolset, workspace, "local_tell", name="SHARED_NAME")).text == "shared"
    assert (await call(toolset, workspace, "local_tell", name="OTHER_SECRET")).text == "nothing"


@pytest.mark.seconds
async def test_a_server_that_ends_or_hangs_costs_the_call_and_is_started_again(toolset: Toolset, workspace: Workspace) -> None:
    ended = await call(toolset, workspace, "local_die")
    assert "the server 'local' does not answer" in ended.error
    assert (await call(toolset, workspace, "local_add", first=1, second=1)).text == "2"
    assert (await call(toolset, workspace, "local_hang", timeout_s=0.5)).error == "local_hang did not answer within 0.5 s"


@pytest.mark.seconds
async def test_pictures_of_a_server_are_shown_on_demand(toolset: Toolset, workspace: Workspace, tmp_path: Path) -> None:
    left_out = await call(toolset, workspace, "local_draw", width=200)
    assert (left_out.text, left_out.images) == ("drawn\n[image, which is not shown]", ())
    assert not toolset.shows_images
    drawing = load_toolset(("search", "local"), (), (LOCAL.model_copy(update={"shows_images": True}),))
    assert drawing.shows_images
    seeing = Workspace(workspace.pages, RolloutImages(store := ImageStores([tmp_path]), max_returned=2))
    drawn = await call(drawing, seeing, "local_draw", width=200)
    [image] = drawn.images
    assert (drawn.text, image.caption, store.open(image.key).size) == ("drawn", "from local", (200, 100))
    large = await call(drawing, seeing, "local_draw", width=60_000)
    assert "one edge is more than 100 times the other" in large.error
    for data, problem in (("%%%", "base64 cannot be read"), ("aGVsbG8=", "got no picture"), ("A" * 28_000_000, "at most")):
        assert problem in (await call(drawing, seeing, "local_draw", width=1, data=data)).error


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server over HTTP that lets in who has the key."""
    app = mcp_tool_server.server.streamable_http_app(streamable_http_path="/mcp", stateless_http=True, json_response=True)

    async def guarded(scope, receive, send) -> None:
        if scope["type"] == "http" and (b"authorization", f"Bearer {KEY}".encode()) not in scope["headers"]:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(guarded, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    server.should_exit = True
    thread.join(10)


async def test_a_server_over_http_gets_the_key_of_the_variable_and_its_answers_have_an_end(
    address: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLS_KEY", KEY)
    remote = McpServerConfig(name="remote", address=address, key_variable="TOOLS_KEY")
    toolset = load_toolset(("search", "remote"), (), (remote,))
    assert (await call(toolset, workspace, "remote_add", first=2, second=3)).text == "5"
    monkeypatch.setenv("TOOLS_KEY", KEY)
    monkeypatch.setattr(mcp_server, "_MAX_BYTES", 1_000_000)
    toolset = load_toolset(("search", "large"), (), (McpServerConfig(name="large", address=address, key_variable="TOOLS_KEY"),))
    assert "an answer of more than 1,000,000 bytes" in (await call(toolset, workspace, "large_flood")).error
    assert (await call(toolset, workspace, "large_add", first=2, second=3)).text == "5"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"command": ("no-such-command-here",)}, "the server 'bad' does not answer"),
        ({"command": (sys.executable, "-c", "")}, "the server 'bad' does not answer"),
        ({"address": "http://127.0.0.1:9/mcp"}, "the server 'bad' does not answer"),
        ({"address": "http://127.0.0.1:9/mcp", "key_variable": "NO_SUCH_KEY"}, "NO_SUCH_KEY of the server 'bad' is not set"),
    ],
)
def test_a_server_that_cannot_be_reached_is_refused_by_name(options: dict[str, object], problem: str) -> None:
    server = McpServerConfig(name="bad", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"agent\.mcp_servers: .*{problem}"):
        load_toolset(("search", "bad"), (), (server,))


def test_a_server_that_is_not_named_is_not_started_and_one_without_the_key_is_told_no_tools(address: str) -> None:
    server = McpServerConfig(name="bad", command=("no-such-command-here",))
    assert len(load_toolset(("search",), (), (server,)).functions) == 1
    with pytest.raises(ConfigError, match="'grep' is the name of something else"):
        load_toolset(("search",), (), (McpServerConfig(name="grep", command=COMMAND),))
    with pytest.raises(ConfigError, match="the server 'closed' does not answer"):
        load_toolset(("search", "closed"), (), (McpServerConfig(name="closed", address=address),))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "either the command of the server or its address"),
        ({"command": ["x"], "address": "http://x"}, "either the command of the server or its address"),
        ({"address": "file:///etc/passwd"}, "expected http:// or https://"),
        ({"address": "https://x", "key_variable": "sk-secret-value"}, "expected the name of an environment variable"),
        ({"command": ["x"], "environment": ["TOKEN=sk-secret-value"]}, "expected the name of an environment variable"),
        ({"command": ["x"], "key_variable": "KEY"}, "key_variable is for an address"),
        ({"command": ["x"], "name": "two words"}, "should match pattern"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        AgentConfig(mcp_servers=[{"name": "server", **options}])  # type: ignore[list-item]
