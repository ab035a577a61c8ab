"""Search engines of the web, as `web_search` asks them: their requests, and where their answers have what is shown."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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
