"""Connections to addresses that were looked at, which take no more time and bytes than they are given.

A name is resolved once, and what was looked at is what is connected to: a name that changes what it stands for in between gains
nothing. TLS is still checked against the name.
"""

import socket
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import httpcore2

from drag_ray.errors import ToolError

CheckAddress = Callable[[str], bool]
"""Whether an IP address may be connected to."""


@dataclass(slots=True)
class Budget:
    """Time and bytes of one fetch, its redirects included.

    Attributes:
        timeout_s: seconds, from its making on.
        max_bytes: bytes that are received.
    """

    timeout_s: float
    max_bytes: int
    _deadline: float = field(init=False)
    _received: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.timeout_s

    def get_left_s(self) -> float:
        """The seconds that are left.

        Raises:
            ToolError: none are.
        """
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise ToolError(f"it did not answer within {self.timeout_s:g} s")
        return left_s

    def receive(self, num_bytes: int) -> None:
        """Count what has come.

        Raises:
            ToolError: it is too much.
        """
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
