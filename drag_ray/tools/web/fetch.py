"""HTTP fetches of addresses of the web, within limits."""

import ssl
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

import httpcore2
import httpx2

from drag_ray.errors import ToolError
from drag_ray.tools.web.connection import Budget, CheckAddress, CheckedBackend

MAX_URL_CHARS = 2000
_ENCODINGS = ("gzip", "deflate")
"""One of which is asked for. Several on top of each other, each of which unpacks a thousandfold, are not unpacked."""
CheckUrl = Callable[[httpx2.URL], None]
"""Raises a ToolError for an address that is not to be fetched; asked for each redirect too."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of a fetch: seconds for all of it, bytes as they come and unpacked, redirects."""

    timeout_s: float
    max_bytes: int
    max_redirects: int = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """The response.

    Attributes:
        url: where from, after redirects.
        content_type: as the server says, in lower case and without parameters.
        charset: likewise; empty if it says none.
        data: unpacked.
    """

    url: str
    content_type: str
    charset: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Order:
    """A request: a method, headers, and a body."""

    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    content: bytes = b""


def fetch(url: str, limits: FetchLimits, check_url: CheckUrl, check_address: CheckAddress, order: Order = Order()) -> Fetched:
    """Fetch an address. Neither proxies, certificates nor passwords of the environment are used, and no cookies.

    Raises:
        ToolError: it is not to be fetched, does not answer, answers otherwise than with 200, or goes beyond the limits.
    """
    budget = Budget(limits.timeout_s, limits.max_bytes)
    headers = {"User-Agent": "drag_ray", "Accept-Encoding": ", ".join(_ENCODINGS), **order.headers}
    with httpx2.Client(transport=_Transport(CheckedBackend(budget, check_address)), trust_env=False) as client:
        client.headers = httpx2.Headers(headers)
        try:
            target = parse_url(url)
            for _ in range(limits.max_redirects + 1):
                check_url(target)
                request = client.build_request(order.method, target, content=order.content or None)
                response = client.send(request, stream=True, follow_redirects=False)
                try:
                    if not response.has_redirect_location:
                        return _read(response, limits, budget)
                    target = parse_url(str(target.join(response.headers["location"])))
                finally:
                    response.close()
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise ToolError(f"it cannot be fetched ({_describe(error)})") from error
        except httpcore2.TimeoutException:
            raise ToolError(f"it did not answer within {limits.timeout_s:g} s") from None
        except _CORE_ERRORS as error:
            raise ToolError(f"it does not answer ({_describe(error)})") from error
    raise ToolError(f"it redirects more than {limits.max_redirects} times")


def parse_url(url: str) -> httpx2.URL:
    """An address of the web.

    Raises:
        ToolError: it is none, or holds a name or password.
    """
    if len(url) > MAX_URL_CHARS:
        raise ToolError(f"the address has {len(url):,} characters, at most {MAX_URL_CHARS:,} are taken")
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise ToolError(f"not an address: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ToolError("an address begins with https:// or http:// and a host")
    if parsed.userinfo:
        raise ToolError("an address with a user name or password is not fetched")
    return parsed


_CORE_ERRORS = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol)


class _Transport(httpx2.BaseTransport):
    """Sends requests over checked connections."""

    def __init__(self, backend: CheckedBackend) -> None:
        self._pool = httpcore2.ConnectionPool(
            ssl_context=_create_ssl_context(), network_backend=backend, max_keepalive_connections=0
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        response = self._pool.handle_request(
            httpcore2.Request(request.method, target, headers=request.headers.raw, content=request.read())
        )
        assert isinstance(response.stream, Iterable)
        return httpx2.Response(response.status, headers=response.headers, stream=_Body(response.stream))

    def close(self) -> None:
        self._pool.close()


class _Body(httpx2.SyncByteStream):
    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def close(self) -> None:
        if close := getattr(self._stream, "close", None):
            close()


@cache
def _create_ssl_context() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


def _read(response: httpx2.Response, limits: FetchLimits, budget: Budget) -> Fetched:
    if response.status_code != 200:
        raise ToolError(f"it answers {response.status_code} {response.reason_phrase}".rstrip())
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", *_ENCODINGS):
        raise ToolError(f"it is packed as {encoding[:100]!r}; {' or '.join(_ENCODINGS)} is unpacked")
    data = bytearray()
    for chunk in response.iter_bytes():
        data += chunk
        budget.get_left_s()
        if len(data) > limits.max_bytes:
            raise ToolError(f"it holds more than {limits.max_bytes:,} bytes")
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Fetched(str(response.url), content_type, response.charset_encoding or "", bytes(data))


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
