"""A client of a running endpoint's search routes."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from drag_ray.errors import ServeError
from drag_ray.storage.json_text import parse_json

_TIMEOUT_S = 600.0
_LONGEST_S = 3600.0
"""of a whole answer; the turns of an agent may come for long"""
_MAX_BYTES = 16 * 2**20
_PIECE_BYTES = 65_536
_DATA = b"data: "


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """Refuse: urllib would carry the key to whatever host is named."""
        raise ServeError(
            f"{req.full_url}: redirects ({code}) to {newurl[:500]!r}, where neither key nor question is sent. If the endpoint is "
            "there, say so with --url."
        )


_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
"""Opens a URL of the endpoint; a proxy that the environment names could not reach it, and would see the key."""


def open_directly(request: urllib.request.Request | str, timeout_s: float) -> Any:
    """The response to a request to the endpoint; raises what urllib does, and a ServeError for one that redirects."""
    return _DIRECTLY.open(request, timeout=timeout_s)


class EndpointClient:
    """Asks one endpoint, at an address with or without the `/v1` that OpenAI's clients want. Raises ServeError where it is no
    address."""

    def __init__(self, url: str, key: str = "") -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ServeError(f"--url {url!r}: expected an address such as http://127.0.0.1:8000.")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def check(self) -> None:
        """Return if the endpoint answers, and takes the key. Raises ServeError where it does not."""
        self._open("/v1/models").close()

    def search(self, **body: Any) -> dict[str, Any]:
        """The answer of `/v1/search`. Raises ServeError where nothing answers there, something else than an endpoint does, or it
        refuses the request, and why."""
        return self._read(b"\n".join(self._list_lines("/v1/search", body)))

    def complete(self, **body: Any) -> dict[str, Any]:
        """The answer of `/v1/completions`. Raises ServeError as `search`."""
        return self._read(b"\n".join(self._list_lines("/v1/completions", body)))

    def ask(self, **body: Any) -> Iterator[dict[str, Any]]:
        """The events of `/v1/ask` as they come: turns, and then the answer. Raises ServeError as `search`, also after some
        turns."""
        for line in self._list_lines("/v1/ask", {**body, "stream": True}):
            if line.startswith(_DATA):
                event = self._read(line.removeprefix(_DATA))
                if event.get("type") == "error":
                    raise ServeError(_find_message(event) or f"{self.url}: an error without a message")
                yield event

    def _list_lines(self, path: str, body: dict[str, Any]) -> Iterator[bytes]:
        """The lines of an answer, which has an end."""
        with closing(self._open(path, body)) as response:
            num_bytes, ends_at, pending = 0, time.monotonic() + _LONGEST_S, b""
            try:
                while piece := response.read1(_PIECE_BYTES):
                    num_bytes += len(piece)
                    if num_bytes > _MAX_BYTES or time.monotonic() > ends_at:
                        raise ServeError(f"{self.url}: an answer of more than {_MAX_BYTES:,} bytes or {_LONGEST_S:,.0f} s")
                    *lines, pending = (pending + piece).split(b"\n")
                    yield from lines
            except (OSError, HTTPException) as error:
                raise ServeError(f"{self.url}: the answer breaks off ({error}).") from None
            yield pending

    def _read(self, data: bytes) -> dict[str, Any]:
        try:
            value = parse_json(data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ServeError(f"{self.url}: answers otherwise than an endpoint of drag_ray: {data[:200]!r}")
        return value

    def _open(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers | {"Content-Type": "application/json"})
        try:
            return open_directly(request, _TIMEOUT_S)
        except urllib.error.HTTPError as error:
            raise ServeError(f"{self.url}{path}: {_read_message(error)}") from None
        except (OSError, HTTPException) as error:
            raise ServeError(
                f"{self.url}: no endpoint answers ({error}). Start one (python jobs/serve.py), or say where it is with --url."
            ) from None


def _read_message(error: urllib.error.HTTPError) -> str:
    """The reason of a refusal: the endpoint's own words, or the status where something else answered."""
    try:
        said = _find_message(parse_json(error.read(_PIECE_BYTES)))
    except (ValueError, OSError, HTTPException):
        said = ""
    return said or f"{error.code} {error.reason}"


def _find_message(refusal: Any) -> str:
    """The message of an endpoint's error; empty where it is none."""
    said = refusal.get("error") if isinstance(refusal, dict) else None
    message = said.get("message") if isinstance(said, dict) else None
    return message if isinstance(message, str) else ""
