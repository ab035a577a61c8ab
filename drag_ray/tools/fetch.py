"""HTTP fetches of addresses of the web, over connections to what was looked at, within limits of time and bytes.

A name is resolved once, and what was looked at is what is connected to: a name that changes what it stands for in between gains
nothing. TLS is still checked against the name.
"""

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

import httpcore2
import httpx2

from drag_ray.errors import ToolError

CheckAddress = Callable[[str], bool]
"""Whether an IP address may be connected to."""


@dataclass(slots=True)
class Budget:
    """Seconds, from its making on, and received bytes of one fetch, its redirects included."""

    timeout_s: float
    max_bytes: int
    _deadline: float = field(init=False)
    _received: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.timeout_s

    def get_left_s(self) -> float:
        """The seconds that are left. Raises ToolError where none are."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise ToolError(f"it did not answer within {self.timeout_s:g} s")
        return left_s

    def receive(self, num_bytes: int) -> None:
        """Count what has come. Raises ToolError where it is too much."""
        self._received += num_bytes
        if self._received > self.max_bytes:
            raise ToolError(f"it answers more than {self.max_bytes:,} bytes")


class CheckedBackend(httpcore2.NetworkBackend):
    """Connects by TCP, within a budget. Errors of the budget and of the check are ToolErrors, others those of httpcore."""

    def __init__(self, budget: Budget, check: CheckAddress) -> None:
        self._budget = budget
        self._check = check
        self._backend = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        addresses = _resolve(host, port)
        if not all(map(self._check, addresses)):  # one alone is enough to be led astray
            raise ToolError(f"{host} is no address of the public internet")
        problem: Exception = httpcore2.ConnectError("no address")
        for address in addresses:
            try:
                stream = self._backend.connect_tcp(address, port, self._budget.get_left_s(), None, socket_options)
                return _CheckedStream(stream, self._budget)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
        raise problem

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None
    ) -> httpcore2.NetworkStream:
        raise ToolError("there is no way to a socket of this machine")


class _CheckedStream(httpcore2.NetworkStream):
    """A connection whose every step takes what is left of the budget."""

    def __init__(self, stream: httpcore2.NetworkStream, budget: Budget) -> None:
        self._stream = stream
        self._budget = budget

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, self._budget.get_left_s())
        self._budget.receive(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._budget.get_left_s())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _CheckedStream(self._stream.start_tls(ssl_context, server_hostname, self._budget.get_left_s()), self._budget)

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


def _resolve(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ToolError(f"there is no host of the name {host[:200]!r}") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


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
    """The response: where from, after redirects; type and charset as the server says, in lower case and without parameters, the
    latter empty if it says none; and its data, unpacked."""

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
    """Fetch an address. Neither proxies, certificates nor passwords of the environment are used, and no cookies. Raises ToolError
    where it is not to be fetched, does not answer, answers otherwise than with 200, or goes beyond the limits."""
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
    """An address of the web. Raises ToolError where it is none, or holds a name or password."""
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
