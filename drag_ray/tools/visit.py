"""The tool `visit`: reads a page of the web, of addresses of the public internet alone.

Off unless an agent names it: what a model asks for leaves this machine. The text of a page is found in a process of its own, for
pages come from anybody.
"""

import codecs
import ipaddress
import tempfile
import threading
from functools import cache
from pathlib import Path

import httpx2

from drag_ray.corpus.readers.document_process import DocumentProcess
from drag_ray.corpus.readers.html_text import parse_html
from drag_ray.corpus.readers.pdf import read_pdf
from drag_ray.errors import DataError, ToolError
from drag_ray.tools.config import ToolOptions, VisitConfig
from drag_ray.tools.fetch import Fetched, FetchLimits, fetch
from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool
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


_TIMEOUT_S = 20.0
"""of a call, from looking up the name to the last byte"""
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

        limits = FetchLimits(_TIMEOUT_S, int(config.max_mib * 2**20), _MAX_REDIRECTS)
        fetched = fetch(arguments.url, limits, lambda url: check_url(url, config), check_address)
        text = _extract(fetched)
        return Observation(f"{fetched.url}\n\n{text}" if text.strip() else f"{fetched.url}\n\nThere is no text on this page.")

    return Tool(name="visit", description="Read a page of the web: its main text.", arguments=VisitArguments, run=visit)


def check_url(url: httpx2.URL, config: VisitConfig) -> None:
    """Refuse URLs that the options exclude. Raises ToolError where they do not."""
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


HTML_TYPES = ("text/html", "application/xhtml+xml")
TEXT_TYPES = ("text/plain", "text/markdown", "text/csv", "application/json")
PDF_TYPE = "application/pdf"
PAGE_TYPES = (*HTML_TYPES, *TEXT_TYPES, PDF_TYPE)
_MAX_PDF_PAGES = 100


def extract_page(data: bytes, content_type: str, charset: str) -> str:
    """The main text of a page: of HTML what trafilatura takes for it (https://aclanthology.org/2021.acl-demo.15/), and where it
    finds nothing all that a browser shows; of a PDF its text layer. Raises DataError where it cannot be read."""
    if content_type == PDF_TYPE:
        return _read_pdf(data)
    if content_type in TEXT_TYPES:
        return _decode(data, charset or "utf-8")

    import trafilatura

    page = _decode(data, charset) if charset else data
    text = trafilatura.extract(page, include_comments=False, include_tables=True)
    if not text:
        return parse_html(page if isinstance(page, str) else _decode(data, "utf-8")).text.strip()
    return text


def _decode(data: bytes, charset: str) -> str:
    """A text; what cannot be read is replaced, as browsers do it."""
    try:
        codec = codecs.lookup(charset)
        return data.decode(codec.name, "replace")
    except (LookupError, UnicodeError, ValueError):
        return data.decode("utf-8", "replace")


def _read_pdf(data: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.pdf")
        path.write_bytes(data)
        pages, problems = read_pdf(path, "page.pdf", last_page=_MAX_PDF_PAGES)
    if not pages:
        raise DataError(problems[0].reason if problems else "a PDF without pages")
    return "\n\n".join(f"page {page.page_number} of {page.total_pages}\n{page.text}" for page in pages)
