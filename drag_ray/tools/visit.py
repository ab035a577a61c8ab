"""The tool `visit`: reads a page of the web, of addresses of the public internet alone.

Off unless an agent names it: what a model asks for leaves this machine.
"""

import ipaddress
import threading
from functools import cache

import httpx2

from drag_ray.corpus.readers.document_process import DocumentProcess
from drag_ray.errors import DataError, ToolError
from drag_ray.tools.config import ToolOptions, VisitConfig
from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool
from drag_ray.tools.web.fetch import Fetched, FetchLimits, fetch
from drag_ray.tools.web.page_text import PAGE_TYPES, extract_page
from drag_ray.tools.workspace import Workspace

_REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "64:ff9b::/96",  # NAT64: leads to any IPv4 address
        "64:ff9b:1::/48",
        "2002::/16",  # 6to4, likewise
        "2001::/32",  # Teredo, likewise
        "::/96",  # IPv4 within IPv6, of old
        "::ffff:0:0:0/96",
        "192.0.0.0/24",  # for protocols; a service of metadata among them
        "192.88.99.0/24",  # relays of 6to4
        "168.63.129.16/32",  # Azure's service of metadata, which is in public space
    )
)


def is_public(address: str) -> bool:
    """True if an IP address is one of the public internet.

    It is not where it is private, shared, of a link, of this machine, multicast, reserved or for documentation; metadata services
    of clouds are among these. An IPv6 address of `::ffff:0:0/96` is taken for the IPv4 one that it stands for; those that stand
    for one in other ways are none.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return is_public(str(parsed.ipv4_mapped))
        if parsed.is_site_local:
            return False
    known = any(parsed in network for network in _REFUSED_NETWORKS if network.version == parsed.version)
    return parsed.is_global and not (known or parsed.is_multicast or parsed.is_reserved or parsed.is_unspecified)


_MAX_REDIRECTS = 5
_EXTRACT_GIB = 2.0
_EXTRACT_CPU_S = 10.0
_PORTS = {"http": 80, "https": 443}
_one_at_a_time = threading.Lock()


class VisitArguments(Arguments):
    """The page's URL."""

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
    """Refuse URLs that the options exclude.

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
