"""Ways of a request to a replica and of its stream back, of which each request chooses one by its headers.

Ray Serve calls `build_middlewares` in its proxy and in replicas, where `bench_serve_ingress.py` starts an endpoint with it.
"""

from typing import Any

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from drag_ray.serve.ingress.proxy import ProxyAnswers, RunningReplicas, is_in_replica
from drag_ray.serve.ingress.stream_pacing import StreamPacing

STREAM_INTERVAL = "x-stream-interval"
"""Header: vLLM's option alone joins so many tokens to an event."""
_REPLICA = RunningReplicas(1, ("127.0.0.1:30000",))
"""The first port that Ray Serve gives away. With HAProxy it names no replica to others."""


class _Relaying:
    """The endpoint's own way, of all requests that reach the proxy."""

    def __init__(self, app: ASGIApp) -> None:
        self._relay = ProxyAnswers(app, lambda: _REPLICA)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._relay(scope, receive, send)


class _OpenHealth:
    """A replica's middleware as it is, but that HAProxy, which asks for its health, has an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._closed = app, ProxyAnswers(app, None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app if scope.get("path") == "/-/healthz" else self._closed
        await app(scope, receive, send)


def read_header(scope: Scope, name: str) -> str:
    """A header of a request; empty where it has none of this name."""
    return next((value.decode() for key, value in scope.get("headers", ()) if key == name.encode()), "")


def _let_requests_choose_pacing() -> None:
    paced = StreamPacing.__call__

    async def choose(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        if interval := read_header(scope, STREAM_INTERVAL):
            self._event_size._pack(int(interval))
            await self.app(scope, receive, send)
        else:
            await paced(self, scope, receive, send)

    StreamPacing.__call__ = choose


def build_middlewares() -> list[Middleware]:
    """Middleware of the proxy, or of a replica."""
    if not is_in_replica():
        return [Middleware(_Relaying)]
    _let_requests_choose_pacing()
    return [Middleware(_OpenHealth)]
