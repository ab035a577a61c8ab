"""Middleware of Ray Serve's HTTP proxy, which answers some requests before any or without an application.

Its own routes are closed, what it refuses is said with OpenAI's error object, and it says that it lives at /live. Where no
engine runs it would keep requests until one does; they are told to come back, and it is given one of its own, for which Ray
Serve starts an engine where it had ended all of them for want of requests.
Ray Serve calls `build_middlewares` in the proxy's process, because a variable of the environment that `cluster.connection` sets
names it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drag_ray.serve.ingress.guard import HEALTH_PATH, build_answer
from drag_ray.serve.ingress.key import is_loopback
from drag_ray.serve.ingress.limits import ENGINE_HAS_DIED, RefusalError
from drag_ray.serve.ingress.queues import WAITED_HEADER
from drag_ray.serve.ingress.relay import LostEngineError, Relay

_logger = logging.getLogger(__name__)

_TAKE_REQUESTS = {"RUNNING", "RECOVERING"}
"""States of replicas. A controller that was killed looks, once it is there again, at those that it finds before they run."""


@dataclass(frozen=True)
class RunningReplicas:
    """Replicas of Ray Serve's applications that take requests, and `HOST:PORT` of those among them that listen for themselves."""

    number: int
    addresses: tuple[str, ...] = ()


def find_running_replicas() -> RunningReplicas | None:
    """The replicas that run; None where there is no application. Asks Ray Serve's controller, and waits for it."""
    from ray.serve.context import _get_global_client  # pyright: ignore[reportPrivateUsage]

    client = _get_global_client()
    if client is None:
        return None
    details = client.get_serve_details()
    deployments = [
        deployment for application in details["applications"].values() for deployment in application["deployments"].values()
    ]
    if not deployments:
        return None
    running = {
        replica["actor_name"]
        for deployment in deployments
        for replica in deployment["replicas"]
        if replica["state"] in _TAKE_REQUESTS
    }
    targets = [target for group in details["target_groups"] for target in group["targets"] if group["protocol"] == "HTTP"]
    # Where no replica listens for itself, the targets are Ray Serve's proxies.
    return RunningReplicas(len(running), tuple(_join_address(target) for target in targets if target["name"] in running))


def _join_address(target: dict[str, Any]) -> str:
    host, port = target["ip"], target["port"]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_in_replica() -> bool:
    """True if this process is a replica of a deployment of Ray Serve."""
    from ray import serve
    from ray.serve.exceptions import RayServeException

    try:
        serve.get_replica_context()
    except RayServeException:
        return False
    return True


LIVE_PATH = "/live"
_OWN_ROUTES = "/-/"
_PROXY_HEALTH = "/-/healthz"
"""Whether Ray Serve's proxy takes requests, or is about to go: Kubernetes' operator has each pod ask itself, and sends clients to
those that say `success`."""
_REFUSALS = {
    404: RefusalError(503, "the endpoint is starting. Ask again after the seconds of Retry-After."),
    408: RefusalError(408, "the request took too long."),
    429: RefusalError(
        429, "more requests are on their way than the endpoint can refuse. Ask again after the seconds of Retry-After."
    ),
    500: RefusalError(500, "the request failed; see the endpoint's log."),
    503: RefusalError(503, "no engine is there to answer at this moment. Ask again after the seconds of Retry-After."),
}
"""What an answer of the proxy's own means, by its status; an application that covers all paths leaves it none to miss."""

_LOOK_EVERY_S = 2.0
_TRUST_S = 4.0
"""Less than an engine goes on listening after it was told to end."""
_DISTRUST_S = 120.0
"""After an engine has died, in which Ray Serve takes it for running until it has failed some looks of its own."""


class EngineWatch:
    """Cached lookup of running engines as requests come.

    A request waits for the answer only where it is the first, where none ran the last time, where that was long ago, or an engine
    has died; otherwise it costs nothing. `find_engines`: the engines that can answer; None where that is not known. May block."""

    def __init__(self, find_engines: Callable[[], RunningReplicas | None]) -> None:
        self._find_engines = find_engines
        self._engines: RunningReplicas | None = None
        self._looked_at = 0.0
        self._look: asyncio.Task[None] | None = None
        self._distrusted_until = 0.0

    def distrust(self) -> None:
        """Look the engines up before each request, for a while, because one has died."""
        self._distrusted_until = time.monotonic() + _DISTRUST_S

    async def find(self) -> RunningReplicas | None:
        """The engines that run; None where that is not known."""
        now = time.monotonic()
        is_distrusted, age_s = now < self._distrusted_until, now - self._looked_at
        if is_distrusted or age_s > _LOOK_EVERY_S:
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._look_up())
            # The port of an engine that has been gone for a while may be anybody's. Where there was no answer, or no application,
            # requests do not wait for the next one.
            is_old = age_s > _TRUST_S and (self._engines is not None or not self._looked_at)
            if is_distrusted or is_old or (self._engines and not self._engines.number):
                await asyncio.shield(self._look)
        return self._engines

    async def _look_up(self) -> None:
        before = self._engines
        try:
            found = await asyncio.to_thread(self._find_engines)
        except Exception as error:  # whatever Ray raises while its controller is away: requests go on as without a watch
            _logger.warning("the engines that run cannot be had at this moment: %s", error)
            found = None
        if found and not found.number and (before is None or before.number):
            _logger.error("no engine runs: requests get 503 until one does")
        elif found and found.number and before and not before.number:
            _logger.warning("%d engine(s) run again", found.number)
        self._engines, self._looked_at = found, time.monotonic()


class ProxyAnswers:
    """ASGI middleware: the proxy's answers, in the endpoint's words, and the engines' from where they listen for themselves.
    `app` is Ray Serve's proxy or, where engines are not looked for (`find_engines` is None), what a replica serves by itself."""

    def __init__(self, app: ASGIApp, find_engines: Callable[[], RunningReplicas | None] | None = find_running_replicas) -> None:
        self._app = app
        self._watch = EngineWatch(find_engines) if find_engines else None
        self._relay = Relay()
        self._waking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (self._watch and _asks_for_its_own_proxy(scope)):
            await self._app(scope, receive, send)
        elif scope["path"].startswith(_OWN_ROUTES):
            refusal = RefusalError(404, f"{scope['path'][:200]} is not a route of this endpoint.")
            await build_answer(refusal)(scope, receive, send)
        elif scope["path"] == LIVE_PATH:
            await Response()(scope, receive, send)
        elif self._watch:
            await self._answer(self._watch, scope, receive, send)
        else:
            await self._app(scope, receive, _Rewording(scope, receive, send))

    async def _answer(self, watch: EngineWatch, scope: Scope, receive: Receive, send: Send) -> None:
        engines = await watch.find()
        if engines and not engines.number:
            is_probe = scope["path"] == HEALTH_PATH
            if not is_probe and (self._waking is None or self._waking.done()):
                self._waking = asyncio.create_task(_wake(self._app, scope))
            await build_answer(_REFUSALS[503])(scope, receive, send)
            return
        send_on = _Rewording(scope, receive, send, watch.distrust)
        address = self._relay.choose(engines.addresses) if engines else None
        if address:
            try:
                if await self._relay.pass_on(address, scope, receive, send_on):
                    return
            except LostEngineError as error:
                _logger.error("an engine has not answered: %s", error)
                watch.distrust()
                await build_answer(RefusalError(503, ENGINE_HAS_DIED))(scope, receive, send)
                return
            watch.distrust()
        await self._app(scope, receive, send_on)


async def _wake(app: ASGIApp, asked: Scope) -> None:
    """Have Ray Serve keep a request until an engine runs: as long as it has one it lets an engine start."""
    scope = {**asked, "method": "GET", "path": HEALTH_PATH, "raw_path": HEALTH_PATH.encode(), "query_string": b"", "headers": []}
    messages: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        """Discard the answer."""

    try:
        await app(scope, receive, send)
    except Exception as error:  # whatever Ray raises: the next request tries again
        _logger.warning("no engine could be had: %s", error)


def _asks_for_its_own_proxy(scope: Scope) -> bool:
    host, _ = scope.get("client") or ("", 0)
    return scope["path"] == _PROXY_HEALTH and is_loopback(host)


class _Rewording:
    """A `send` that puts the endpoint's words in place of the proxy's plain text; applications refuse in JSON."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, note_death: Callable[[], None] = lambda: None) -> None:
        self._scope, self._receive, self._send, self._note_death = scope, receive, send, note_death
        self._has_answered = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message["headers"]))
            refusal = _REFUSALS.get(message["status"])
            if message["status"] == 503 and WAITED_HEADER not in headers:
                self._note_death()
            if refusal and not headers.get("content-type", "").startswith("application/json"):
                self._has_answered = True
                answer = build_answer(refusal)
                answer.headers.update({name: headers[name] for name in ("retry-after",) if name in headers})
                await answer(self._scope, self._receive, self._send)
        if not self._has_answered:
            await self._send(message)


def build_middlewares() -> list[Middleware]:
    """Middleware of the proxy, or of a replica that listens for itself, whose own routes are closed, too."""
    return [Middleware(ProxyAnswers, find_engines=None if is_in_replica() else find_running_replicas)]
