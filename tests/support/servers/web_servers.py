"""Servers of the web on the loopback network, of which each address is a machine of its own, and names that lead to them."""

import contextlib
import socket
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import pytest

Reply = Callable[[socket.socket, str], None]
"""Answers a request, of which it is given the path."""


@dataclass
class WebServer:
    """A server that answers by path, and notes what it was asked."""

    port: int = 0
    replies: dict[str, Reply] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(20)
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65_536)
            head, _, body = head.partition(b"\r\n\r\n")
            for line in head.split(b"\r\n"):
                while line.lower().startswith(b"content-length:") and len(body) < int(line.split(b":")[1]):
                    body += connection.recv(65_536)
            self.requests.append((head + b"\r\n\r\n" + body).decode("latin-1"))
            self.replies[self.requests[-1].split()[1].partition("?")[0]](connection, self.requests[-1].split()[1])


@contextlib.contextmanager
def serve(address: str = "127.0.0.1", port: int = 0) -> Generator[WebServer]:
    """A server at an address of the loopback network."""
    server = WebServer()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen()
        server.port = listener.getsockname()[1]

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=server.answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)


def reply(body: bytes = b"", content_type: str = "text/html", status: str = "200 OK", **headers: str) -> Reply:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"Content-Type: {content_type}"] * bool(content_type)
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return lambda connection, _: connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


def name_hosts(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[list[str]]]) -> list[str]:
    """Let names stand for addresses: those of the first list when first asked, then of the next. Returns what was asked."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: str, port: int, *args: object, **options: object) -> object:
        asked.append(host)
        if host not in names:
            return real(host, port, *args, **options)  # type: ignore[arg-type]
        addresses = names[host][min(asked.count(host), len(names[host])) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked
