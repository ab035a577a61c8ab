"""A client of a running endpoint's search routes."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from drag_ray.errors import ServeError

_TIMEOUT_S = 600.0
_DATA = b"data: "
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens a URL of the endpoint; a proxy that the environment names could not reach it, and would see the key."""


def open_directly(request: urllib.request.Request | str, timeout_s: float) -> Any:
    """The response to a request to the endpoint; raises what urllib does."""
    return _DIRECTLY.open(request, timeout=timeout_s)


class EndpointClient:
    """Asks one endpoint.

    Args:
        url: its address; the `/v1` that OpenAI's clients want of it may stand at its end.
        key: its key; empty where it needs none.

    Attributes:
        url: without a path.
        headers: what its requests carry.

    Raises:
        ServeError: the address is none.
    """

    def __init__(self, url: str, key: str = "") -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ServeError(f"--url {url!r}: expected an address such as http://127.0.0.1:8000.")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def check(self) -> None:
        """Return if the endpoint answers, and takes the key.

        Raises:
            ServeError: it does not.
        """
        self._open("/v1/models").close()

    def search(self, **body: Any) -> dict[str, Any]:
        """What `/v1/search` answers.

        Raises:
            ServeError: nothing answers there, or the endpoint refuses the request, and why.
        """
        with closing(self._open("/v1/search", body)) as response:
            return json.load(response)

    def ask(self, **body: Any) -> Iterator[dict[str, Any]]:
        """The events of `/v1/ask` as they come: turns, and then the answer.

        Raises:
            ServeError: as `search`, also after some turns.
        """
        with closing(self._open("/v1/ask", {**body, "stream": True})) as response:
            for line in response:
                if not line.startswith(_DATA):
                    continue
                event = json.loads(line.removeprefix(_DATA))
                if event["type"] == "error":
                    raise ServeError(event["error"]["message"])
                yield event

    def _open(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers | {"Content-Type": "application/json"})
        try:
            return open_directly(request, _TIMEOUT_S)
        except urllib.error.HTTPError as error:
            raise ServeError(f"{self.url}{path}: {_read_message(error)}") from None
        except OSError as error:
            raise ServeError(
                f"{self.url}: no endpoint answers ({error}). Start one (python jobs/serve.py), or say where it is with --url."
            ) from None


def _read_message(error: urllib.error.HTTPError) -> str:
    """Why a request was refused: the endpoint's own words, or the status where something else answered."""
    try:
        return json.load(error)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
