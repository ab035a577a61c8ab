"""Ray Serve's HTTP proxy answers some routes by itself, before any application: these are closed too.

Ray Serve calls `build_middlewares` in the proxy's process, because an environment variable that `cluster.connect` sets names it.
"""

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from drag_ray.serve.guard import build_answer
from drag_ray.serve.limits import RefusalError

_OWN_ROUTES = "/-/"


class OwnRoutesClosed:
    """ASGI middleware: `/-/routes`, which lists the cluster's applications, and whatever else is there, is not there."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(_OWN_ROUTES):
            refusal = RefusalError(404, f"{scope['path'][:200]} is not a route of this endpoint.")
            await build_answer(refusal)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def build_middlewares() -> list[Middleware]:
    """What the proxy is wrapped in."""
    return [Middleware(OwnRoutesClosed)]
