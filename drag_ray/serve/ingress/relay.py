"""Relay between Ray Serve's proxy and the HTTP server of an engine's replica.

Ray Serve's own way between the two, through calls of actors, costs each of them about ten milliseconds of CPU time for a
streamed answer. A replica that listens for itself (direct ingress) is reached by HTTP, which costs a part of that.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from starlette.types import Message, Receive, Scope, Send

_CONNECT_LIMIT_S = 2.0
_LEAVE_OUT_S = 60.0
_SEND_LIMIT_S = 60.0
"""In which a client takes a part of its answer: the engine's place for a request is free once the answer has been sent."""
_KEEP_CONNECTION_S = 30.0
"""Below Ray Serve's own limit, so that no request goes into a connection that is being closed."""
_HOP_BY_HOP = {
    *(b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    *(b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
}
_MAX_HEADER_BYTES = 2**17
"""Above what the engine's server takes of a request, part of which its answer repeats."""
_NOT_SENT = _HOP_BY_HOP | {b"x-forwarded-for", b"x-forwarded-proto", b"forwarded", b"expect"}
_NOT_RETURNED = _HOP_BY_HOP | {b"date", b"server"}
"""The proxy's own server adds the last two."""

_logger = logging.getLogger(__name__)


class LostEngineError(Exception):
    """The engine's server has ended the connection before it answered."""


class _SlowClientError(Exception):
    """The client does not take its answer."""


class Relay:
    """Passes requests on to the least busy of some servers, for one event loop. A client that takes no part of its answer for
    `send_limit_s` seconds is taken for one that has hung up."""

    def __init__(self, send_limit_s: float = _SEND_LIMIT_S) -> None:
        self._send_limit_s = send_limit_s
        self._num_ongoing: Counter[str] = Counter()
        self._left_out_until: dict[str, float] = {}
        self._session: Any = None

    def choose(self, addresses: Sequence[str]) -> str | None:
        """The server, as `HOST:PORT`, with the fewest requests under way; None where none of them can be reached."""
        now = time.monotonic()
        reachable = [address for address in addresses if self._left_out_until.get(address, 0.0) <= now]
        return min(reachable, key=self._num_ongoing.__getitem__, default=None)

    async def pass_on(self, address: str, scope: Scope, receive: Receive, send: Send) -> bool:
        """Have a server answer. Who hangs up ends the request there, too. Returns False if it cannot be reached; then nothing of
        the request is used up, and the server is left out for a while. Raises LostEngineError where it was reached, and has not
        answered; and aiohttp.ClientError where it has begun an answer, and not ended it."""
        if not scope["raw_path"].startswith(b"/") or not (scope["raw_path"] + scope["query_string"]).isascii():
            return False  # as of `OPTIONS *`: no route of an engine is called so
        self._num_ongoing[address] += 1
        body = _Body(receive, {name for name, _ in scope["headers"]})
        answering = asyncio.create_task(self._answer(address, scope, body, self._limit(send)))
        leaving = asyncio.create_task(body.wait_for_disconnect())
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            return answering.result() if answering.done() else True
        except _SlowClientError:
            _logger.warning("a client took nothing of its answer for %g s: the request is ended", self._send_limit_s)
            return True
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)
            self._num_ongoing[address] -= 1

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    def _limit(self, send: Send) -> Send:
        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(self._send_limit_s):
                    await send(message)
            except TimeoutError:
                raise _SlowClientError from None

        return send_in_time

    async def _answer(self, address: str, scope: Scope, body: "_Body", send: Send) -> bool:
        import aiohttp
        from yarl import URL

        target = {"path": scope["raw_path"].decode("ascii"), "query_string": scope["query_string"].decode("ascii")}
        url = URL.build(scheme="http", authority=address, encoded=True, **target)
        not_sent = _NOT_SENT | ({b"content-length"} if body.is_chunked else set())
        headers = [(_to_text(name), _to_text(value)) for name, value in scope["headers"] if name not in not_sent]
        if scope.get("client"):
            headers.append(("x-forwarded-for", scope["client"][0]))
        data = body.read() if body.is_there else None
        has_begun = False
        try:
            async with self._open_session().request(
                scope["method"], url, headers=headers, data=data, allow_redirects=False
            ) as response:
                has_begun = True
                returned = [(name.lower(), value) for name, value in response.raw_headers if name.lower() not in _NOT_RETURNED]
                await send({"type": "http.response.start", "status": response.status, "headers": returned})
                async for chunk in response.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except aiohttp.ClientConnectorError:
            return self._leave_out(address)
        except (aiohttp.ClientError, TimeoutError) as error:
            if body.is_cut:
                return True
            if has_begun:
                raise
            if not body.has_begun and isinstance(error, TimeoutError):
                return self._leave_out(address)
            raise LostEngineError(str(error)) from error
        return True

    def _leave_out(self, address: str) -> bool:
        """Skip a server for a while: a firewall may delay each request."""
        self._left_out_until[address] = time.monotonic() + _LEAVE_OUT_S
        return False

    def _open_session(self) -> Any:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_CONNECTION_S),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_LIMIT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                max_line_size=_MAX_HEADER_BYTES,
                max_field_size=_MAX_HEADER_BYTES,
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            )
        return self._session


class _Body:
    """A request's body, which is passed on as it comes, and the client's end after it."""

    def __init__(self, receive: Receive, headers: set[bytes]) -> None:
        self._receive = receive
        self._is_over = asyncio.Event()
        self.is_chunked = b"transfer-encoding" in headers
        self.is_there = self.is_chunked or b"content-length" in headers
        self.has_begun = self.is_cut = False
        if not self.is_there:
            self._is_over.set()

    async def read(self) -> AsyncGenerator[bytes]:
        """The parts of the body."""
        self.has_begun = True
        try:
            more_body = True
            while more_body:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    self.is_cut = True
                    raise ConnectionResetError("the client disconnected before its request was complete")
                yield message.get("body", b"")
                more_body = message.get("more_body", False)
        finally:
            self._is_over.set()

    async def wait_for_disconnect(self) -> None:
        """Return once the client has hung up, or has its answer."""
        await self._is_over.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _to_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
