"""The HTTP client that prompts and calls are sent with: it follows no redirect, and an answer takes no more than it is given."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from drag_ray.errors import AnswerError

_PACKED = ("content-encoding", "content-length")
"""Headers of an answer that are not true of it when it is unpacked."""
_CONNECT_S = 30.0


class BoundedClient(httpx2.AsyncClient):
    """A client that hands a redirect back as it is, and whose `send` raises AnswerErrors for answers that go beyond the limits.

    Args:
        max_bytes: of an answer, unpacked.
        timeout_s: seconds for a request and its whole answer; where that is streamed, for each piece of it.
        options: further ones of `httpx2.AsyncClient`.
    """

    def __init__(self, max_bytes: int, timeout_s: float, **options: Any) -> None:
        timeout = httpx2.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s))
        super().__init__(timeout=timeout, follow_redirects=False, **options)
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request, as `httpx2.AsyncClient` does. Raises AnswerError where the answer is too large, takes too long or
        cannot be unpacked. A stream raises it as it is read."""
        options["follow_redirects"] = False
        try:
            async with asyncio.timeout(None if stream else self._timeout_s):
                response = await super().send(request, stream=True, **options)
                try:
                    answer = _bound(response, self._max_bytes)
                    if not stream:
                        await answer.aread()
                except BaseException:
                    await response.aclose()
                    raise
                return answer
        except TimeoutError:
            raise AnswerError(f"no whole answer within {self._timeout_s:g} s") from None
        except httpx2.DecodingError as error:
            raise AnswerError(f"an answer that cannot be unpacked ({error})") from None


class TooLargeError(AnswerError, httpx2.StreamError):
    """An answer is larger than it may be; a StreamError, so that who reads the stream knows what to do about it."""


def _bound(response: httpx2.Response, max_bytes: int) -> httpx2.Response:
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _PACKED]
    stream = _BoundedStream(response, max_bytes)
    bounded = httpx2.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)
    bounded.request = response.request
    return bounded


class _BoundedStream(httpx2.AsyncByteStream):
    """The unpacked answer, in pieces of 1 MiB at most; TooLargeError beyond the allowed bytes."""

    def __init__(self, response: httpx2.Response, max_bytes: int) -> None:
        self._response = response
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        num_bytes = 0
        async for piece in self._response.aiter_bytes():
            num_bytes += len(piece)
            if num_bytes > self._max_bytes:
                raise TooLargeError(f"an answer of more than {self._max_bytes:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()
