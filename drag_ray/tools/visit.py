"""Reading a page of the web. Off unless an agent names it: what a model asks for leaves this machine."""

import threading
from functools import cache

import httpx2

from drag_ray.corpus.readers.document_process import DocumentProcess
from drag_ray.errors import DataError, ToolError
from drag_ray.tools.addresses import is_public
from drag_ray.tools.config import ToolOptions, VisitConfig
from drag_ray.tools.fetch import Fetched, FetchLimits, fetch
from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool
from drag_ray.tools.web_page import PAGE_TYPES, extract_page
from drag_ray.tools.workspace import Workspace

_MAX_REDIRECTS = 5
_EXTRACT_GIB = 2.0
_EXTRACT_CPU_S = 10.0
_PORTS = {"http": 80, "https": 443}
_one_at_a_time = threading.Lock()


class VisitArguments(Arguments):
    """What is read."""

    url: str
    """Address of the page, for example https://example.org/report."""


def make_tool(options: ToolOptions) -> Tool:
    """The tool, for the domains that the options allow."""
    config = options.visit

    def visit(arguments: VisitArguments, workspace: Workspace) -> Observation:
        def check_address(address: str) -> bool:
            return config.allow_private or is_public(address)

        limits = FetchLimits(config.timeout_s, int(config.max_mib * 2**20), _MAX_REDIRECTS)
        fetched = fetch(arguments.url, limits, lambda url: check_url(url, config), check_address)
        text = _extract(fetched)
        return Observation(f"{fetched.url}\n\n{text}" if text.strip() else f"{fetched.url}\n\nThere is no text on this page.")

    return Tool(name="visit", description="Read a page of the web: its main text.", arguments=VisitArguments, run=visit)


def check_url(url: httpx2.URL, config: VisitConfig) -> None:
    """Whether the options allow an address.

    Raises:
        ToolError: they do not.
    """
    host = url.raw_host.decode("ascii").lower().rstrip(".")
    port = url.port or _PORTS[url.scheme]
    if port not in config.ports:
        raise ToolError(f"port {port} is not fetched from; {', '.join(map(str, config.ports))} are")
    if config.allowed_domains and not _is_within(host, config.allowed_domains):
        raise ToolError(f"{host} is not among the sites that may be visited: {', '.join(config.allowed_domains)}"[:400])
    if _is_within(host, config.refused_domains):
        raise ToolError(f"{host} is not to be visited")


def _is_within(host: str, domains: tuple[str, ...]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _extract(fetched: Fetched) -> str:
    if fetched.content_type not in PAGE_TYPES:
        raise ToolError(f"it is of type {fetched.content_type[:100] or 'unknown'}; pages of text and PDF are read")
    try:
        with _one_at_a_time:
            return _open_process().run(extract_page, fetched.data, fetched.content_type, fetched.charset)
    except DataError:
        raise ToolError("it is damaged, or reading it takes too much") from None


@cache
def _open_process() -> DocumentProcess:
    """The process that reads pages for this one."""
    return DocumentProcess(_EXTRACT_GIB, _EXTRACT_CPU_S)
