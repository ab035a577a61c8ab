"""Options of tools: of those that ship, with the search engines that they know, and of MCP servers."""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator, model_validator

from drag_ray.config import BaseConfig, VariableName

QUERY = "{query}"
"""Stands in an address for what is looked for."""


@dataclass(frozen=True, slots=True)
class SearchProvider:
    """A search engine that answers in JSON.

    Attributes:
        address: where it is asked unless the options say otherwise; empty: it has no public one.
        results: the place of the list of results, for example `web.results`.
        url: of a result: its address. `title` is its title everywhere.
        snippet: of a result: its excerpt.
        key_header: carries the key; in Authorization it is a bearer token.
        query_field: the field in which the query is sent as JSON (POST); empty: the address holds QUERY (GET).
    """

    address: str = ""
    results: str = "results"
    url: str = "url"
    snippet: str = "content"
    key_header: str = "Authorization"
    query_field: str = ""


PROVIDERS = {
    "searxng": SearchProvider(),
    "brave": SearchProvider(
        address=f"https://api.search.brave.com/res/v1/web/search?q={QUERY}",
        results="web.results",
        snippet="description",
        key_header="X-Subscription-Token",
    ),
    "serper": SearchProvider(
        address="https://google.serper.dev/search",
        results="organic",
        url="link",
        snippet="snippet",
        key_header="X-API-KEY",
        query_field="q",
    ),
}
"""By the names that `agent.web_search.provider` knows."""

if TYPE_CHECKING:
    ProviderName = str
else:
    ProviderName = Literal[tuple(PROVIDERS)]


_DOMAIN = r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*"


class McpServerConfig(BaseConfig):
    """An MCP server: a command that is started and spoken to over its standard input and output, or an address."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")
    """how agent.tools calls it; the model sees its tools as NAME_TOOL"""
    command: tuple[str, ...] = ()
    """the command with its arguments; every process that calls the tools starts one. It runs with the rights of that process"""
    environment: tuple[VariableName, ...] = ()
    """names of environment variables that are passed to the command in addition to PATH, HOME and the like"""
    address: str = ""
    """address of a server that speaks streamable HTTP, for example https://tools.example.org/mcp; redirects are not followed"""
    key_variable: VariableName = ""
    """name of the environment variable that holds the key of the address (a bearer token), which every process that calls the
    tools must have; empty: the server wants none. The key itself belongs in no option and in no file"""
    shows_images: bool = False
    """whether pictures that its tools return are shown, to a model that sees images; without it they are named and left out"""

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
    """Limits of the code that a model writes, for each call."""

    timeout_s: float = Field(default=10.0, gt=0, le=3600)
    """seconds"""
    memory_mib: int = Field(default=512, ge=64, le=65536)
    """memory"""


class SuperResolutionConfig(BaseConfig):
    """Upscaling of images."""

    model: str = ""
    """ONNX file of a model that enlarges images: RGB from 0 to 1 as (1, 3, height, width), of any size, to 2, 3 or 4 times the
    height and width; empty: interpolation. Every process that calls the tool loads it"""


class VisitConfig(BaseConfig):
    """The web pages that a model may read, and the limits of a call."""

    allowed_domains: tuple[str, ...] = ()
    """sites that may be visited, with their subdomains, for example example.org; empty: every public one"""
    refused_domains: tuple[str, ...] = ()
    """sites that may not be visited, with their subdomains"""
    ports: tuple[int, ...] = (80, 443)
    """ports that are connected to"""
    allow_private: bool = False
    """also visit addresses outside the public internet, including those of this machine and of cloud metadata services; a
    model then reaches whatever this machine reaches"""
    max_mib: float = Field(default=5.0, gt=0, le=100)
    """largest size of a page, both compressed and unpacked"""

    @field_validator("allowed_domains", "refused_domains")
    @classmethod
    def _are_domains(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not re.fullmatch(_DOMAIN, name):
                raise ValueError(f"{name!r} is no domain; give it as example.org, in lower case, other alphabets as xn--...")
        return value


class WebSearchConfig(BaseConfig):
    """The search engine that is asked."""

    provider: ProviderName = "searxng"
    """protocol of the endpoint; searxng: also any other endpoint that answers with results of title, url and content"""
    address: str = ""
    """address of the endpoint, for example https://search.example.org/search?format=json&q={query}; {query} stands for the
    model's query. It may be in your own network. Redirects are not followed. Empty: the provider's public address, which
    searxng lacks"""
    key_variable: VariableName = ""
    """name of the environment variable that holds the key, in every process that calls the tool; empty: no key. The key itself
    belongs in no option and in no file"""

    @model_validator(mode="after")
    def _can_be_asked(self) -> "WebSearchConfig":
        if self.address and not self.address.startswith(("http://", "https://")):
            raise ValueError("address: expected http:// or https://")
        posts = bool(PROVIDERS[self.provider].query_field)
        if self.address and (QUERY in self.address) == posts:
            raise ValueError(f"address: expected {'none' if posts else 'one'} with {QUERY} for the provider {self.provider}")
        return self


@dataclass(frozen=True)
class ToolOptions:
    """The options of the tools that ship."""

    python_interpreter: PythonInterpreterConfig = field(default_factory=PythonInterpreterConfig)
    super_resolution: SuperResolutionConfig = field(default_factory=SuperResolutionConfig)
    visit: VisitConfig = field(default_factory=VisitConfig)
    web_search: WebSearchConfig = field(default_factory=WebSearchConfig)
