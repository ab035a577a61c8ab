"""Searching the web at an endpoint of the user's."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from web_servers import WebServer, reply, serve

from drag_ray.agent.config import AgentConfig
from drag_ray.errors import ConfigError
from drag_ray.tools import web_search
from drag_ray.tools.calls import CallLimits, CallOutcome, ToolCaller
from drag_ray.tools.config import ToolOptions, WebSearchConfig
from drag_ray.tools.web_search import make_tool
from drag_ray.tools.workspace import Workspace

SHOWN = "1. Rain\nhttps://example.org/rain\nIt rained.\n\n2. Snow\nhttps://example.org/snow\nIt snowed."


@pytest.fixture(scope="module")
def server() -> Iterator[WebServer]:
    with serve() as server:
        yield server


async def search(workspace: Workspace, query: str = "rain & snow?", **options: Any) -> CallOutcome:
    caller = ToolCaller(make_tool(ToolOptions(web_search=WebSearchConfig(**options))))
    return await caller.call(json.dumps({"query": query}), workspace, CallLimits(timeout_s=30, max_chars=10_000))


def list_entries(title: str, url: str, snippet: str) -> list[dict[str, Any]]:
    named = [("Rain", "rain", "It\n rained."), ("Snow", "snow", "It snowed.")]
    return [{title: name, url: f"https://example.org/{path}", snippet: text, "more": [1]} for name, path, text in named]


@pytest.mark.parametrize(
    ("provider", "path", "entries", "asked"),
    [
        (
            "searxng",
            "/search?format=json&q={query}",
            {"results": list_entries("title", "url", "content")},
            ("GET /search?format=json&q=rain+%26+snow%3F HTTP/1.1", "Authorization: Bearer key-of-mine"),
        ),
        (
            "brave",
            "/web?q={query}",
            {"web": {"results": list_entries("title", "url", "description")}},
            ("GET /web?q=rain+%26+snow%3F", "X-Subscription-Token: key-of-mine"),
        ),
        (
            "serper",
            "/serper",
            {"organic": list_entries("title", "link", "snippet")},
            ("POST /serper", "X-API-KEY: key-of-mine", '{"q": "rain & snow?"}'),
        ),
    ],
)
async def test_an_endpoint_is_asked_as_it_wants(
    server: WebServer,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    path: str,
    entries: dict[str, Any],
    asked: tuple[str, ...],
) -> None:
    monkeypatch.setenv("SEARCH_KEY", "key-of-mine")
    server.replies[path.partition("?")[0]] = reply(json.dumps(entries).encode())
    options = {"provider": provider, "address": f"http://127.0.0.1:{server.port}{path}", "key_variable": "SEARCH_KEY"}
    assert (await search(workspace, **options)).text == SHOWN
    assert all(part in server.requests[-1] for part in asked)
    monkeypatch.setattr(web_search, "_NUM_RESULTS", 1)
    assert (await search(workspace, **options)).text == SHOWN.partition("\n\n")[0]


@pytest.mark.parametrize(
    ("body", "text", "error"),
    [
        (b"{}", "Nothing was found.", ""),
        (b'{"results": []}', "Nothing was found.", ""),
        (b'{"results": [3, null, {"title": "no address"}]}', "Nothing was found.", ""),
        (b'{"results": [{"url": "u", "title": {"a": 1}, "content": null}]}', "1. {'a': 1}\nu\n", ""),
        (b'{"results": {"a": 1}}', None, "has no list 'results'"),
        (b"[1]", "Nothing was found.", ""),
        (b"<html>", None, "something other than JSON"),
        (b"[" * 100_000, None, "something other than JSON"),
        (b"\xff\xfe", None, "something other than JSON"),
    ],
)
async def test_answers_of_any_form_are_results_or_an_error(
    server: WebServer, workspace: Workspace, body: bytes, text: str | None, error: str
) -> None:
    server.replies["/any"] = reply(body)
    outcome = await search(workspace, address=f"http://127.0.0.1:{server.port}/any?q={{query}}")
    assert error in outcome.error
    assert text is None or (outcome.text, outcome.error) == (text, "")


async def test_the_key_goes_nowhere_else(server: WebServer, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", "key-of-mine")
    with serve("127.0.0.2") as other:
        other.replies["/"] = reply(b"{}")
        server.replies["/moved"] = reply(status="302 Found", Location=f"http://127.0.0.2:{other.port}/")
        address = f"http://127.0.0.1:{server.port}/moved?q={{query}}"
        outcome = await search(workspace, address=address, key_variable="SEARCH_KEY")
        assert "it redirects more than 0 times" in outcome.error
        assert not other.requests
    server.replies["/denied"] = reply(b"key-of-mine", status="401 Unauthorized")
    outcome = await search(workspace, address=f"http://127.0.0.1:{server.port}/denied?q={{query}}", key_variable="SEARCH_KEY")
    assert outcome.error == "it answers 401 Unauthorized"
    assert "Authorization: Bearer key-of-mine" in server.requests[-1]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "web_search needs agent.web_search.address"),
        ({"address": "http://a/?q={query}", "key_variable": "NO_SUCH_KEY"}, "environment variable NO_SUCH_KEY is not set"),
    ],
)
def test_a_missing_endpoint_or_key_is_told_before_an_engine_starts(options: dict[str, str], problem: str) -> None:
    agent = {"protocol": "tools", "max_iterations": 3, "tools": ["search", "web_search"], "web_search": options}
    with pytest.raises(ConfigError, match=problem):
        AgentConfig(**agent).load_tools()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"address": "ftp://a/{query}"}, "expected http:// or https://"),
        ({"address": "http://a/"}, "expected one with .query. for the provider searxng"),
        ({"address": "http://a/{query}", "provider": "serper"}, "expected none with .query. for the provider serper"),
        ({"address": "http://a/{query}", "key_variable": "sk-123"}, "expected the name of an environment variable"),
    ],
)
def test_options_that_cannot_be_worked_with_are_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        WebSearchConfig(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("provider", ["brave", "serper"])
def test_providers_with_a_public_address_need_none(provider: str) -> None:
    assert make_tool(ToolOptions(web_search=WebSearchConfig(provider=provider))).name == "web_search"
