"""Searching the web, at an endpoint of the user's."""

import json
import os
from typing import Any
from urllib.parse import quote_plus

from pydantic import Field

from drag_ray.errors import ConfigError, ToolError
from drag_ray.storage.json_text import parse_json
from drag_ray.tools.config import PROVIDERS, QUERY, ToolOptions, WebSearchConfig
from drag_ray.tools.fetch import Fetched, FetchLimits, Order, fetch
from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

_MAX_BYTES = 5_000_000
_TIMEOUT_S = 15.0
_NUM_RESULTS = 5
_FIELD_CHARS = 500
"""of a title, an address and an excerpt"""


class WebSearchArguments(Arguments):
    """The query."""

    query: str = Field(min_length=1, max_length=400)
    """What to look for."""


def make_tool(options: ToolOptions) -> Tool:
    """The tool, at the endpoint of the options. Raises ConfigError where they name none, or its key is not there."""
    config = options.web_search
    if not (config.address or PROVIDERS[config.provider].address):
        raise ConfigError("agent.tools: web_search needs agent.web_search.address, the endpoint that is asked.")
    _read_key(config)

    def search_web(arguments: WebSearchArguments, workspace: Workspace) -> Observation:
        return _describe(_read_results(_ask(arguments.query, config), config))

    return Tool(
        name="web_search",
        description="Search the web and see titles, addresses and excerpts of the best pages.",
        arguments=WebSearchArguments,
        run=search_web,
    )


def _read_key(config: WebSearchConfig) -> str:
    key = os.environ.get(config.key_variable, "").strip() if config.key_variable else ""
    if config.key_variable and not key:
        raise ConfigError(f"agent.web_search: the environment variable {config.key_variable} is not set here, or empty.")
    return key


def _ask(query: str, config: WebSearchConfig) -> Fetched:
    provider = PROVIDERS[config.provider]
    headers = {"Accept": "application/json"}
    if key := _read_key(config):
        headers[provider.key_header] = f"Bearer {key}" if provider.key_header == "Authorization" else key
    order = Order(headers=headers)
    if provider.query_field:
        body = json.dumps({provider.query_field: query}).encode()
        order = Order("POST", {**headers, "Content-Type": "application/json"}, body)
    limits = FetchLimits(_TIMEOUT_S, _MAX_BYTES)
    address = (config.address or provider.address).replace(QUERY, quote_plus(query))
    # The user has chosen the endpoint: it may be one of their own network.
    return fetch(address, limits, lambda _: None, lambda _: True, order)


def _read_results(fetched: Fetched, config: WebSearchConfig) -> list[dict[str, str]]:
    provider = PROVIDERS[config.provider]
    try:
        found: Any = parse_json(fetched.data)
    except ValueError:
        raise ToolError("the search engine answers with something other than JSON") from None
    for name in provider.results.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if found is None:
        return []
    if not isinstance(found, list):
        raise ToolError(f"the answer of the search engine has no list {provider.results!r}")
    fields = {"title": "title", "url": provider.url, "snippet": provider.snippet}
    results = [
        {name: " ".join(str(entry.get(key) or "").split())[:_FIELD_CHARS] for name, key in fields.items()}
        for entry in found
        if isinstance(entry, dict)
    ]
    return [result for result in results if result["url"]][:_NUM_RESULTS]


def _describe(results: list[dict[str, str]]) -> Observation:
    if not results:
        return Observation("Nothing was found.")
    lines = [f"{rank}. {result['title']}\n{result['url']}\n{result['snippet']}" for rank, result in enumerate(results, 1)]
    return Observation("\n\n".join(lines))
