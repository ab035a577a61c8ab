"""Guard of vLLM's application: an allowlist of its routes, the key, the limits of a request, and the queue.

vLLM guards some of its routes with a key and adds new ones with each version; what is not listed here is not there.
Without a key only this machine is answered, and no web page: neither one that calls the loopback address, which browsers
mark with its origin, another server of this machine's too, nor one whose name was made to point to it, which shows in the
request's host.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from drag_ray.serve.adapters.engine_adapters import UseModel
from drag_ray.serve.ingress.key import KeyHash, find_key, is_loopback
from drag_ray.serve.ingress.limits import ENGINE_HAS_DIED, Limits, RefusalError, parse_body
from drag_ray.serve.ingress.queues import Admission
from drag_ray.serve.ingress.stream_pacing import STREAMED

HEALTH_PATH = "/health"
OPEN_ROUTES = {("GET", HEALTH_PATH)}
"""Answered without a key: a status, and nothing else."""
LISTING_ROUTES = {("GET", "/v1/models"), ("GET", "/v1/index")}
GROUPS = "drag_ray.groups"
"""What of a request's scope says which documents its key may see (see `key.Groups`); nothing where it needs none."""
_CHAT_PATH = "/v1/chat/completions"
GENERATING_ROUTES = {("POST", _CHAT_PATH), ("POST", "/v1/completions"), ("POST", "/v1/responses")}
MCP_PATHS = ("/mcp", "/mcp/")
SEARCHING_ROUTES = {("POST", path) for path in ("/v1/search", "/v1/ask", "/v1/page", *MCP_PATHS)}
FEEDBACK_PATH = "/v1/feedback"
FEEDBACK_ROUTES = {("POST", FEEDBACK_PATH)}
PAGE_ROUTES = {("GET", "/")}
"""Answered without a key, too: the page holds nothing of the collection, and asks for all of it with the key that it is given."""
LOADING_ROUTES = {("POST", "/v1/load_lora_adapter"), ("POST", "/v1/unload_lora_adapter")}
_ENGINE_PATHS = {path for _, path in GENERATING_ROUTES | SEARCHING_ROUTES}
_RETRY_AFTER_S = 30
"""Another engine takes from half a minute on a CPU to some minutes with large weights."""
_BODY_PART_S = 60.0
"""In which the next part of a body is to come."""
_ERROR_TYPES = {
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
    504: "GatewayTimeoutError",
}

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rules:
    """Access rules of the guard: `keys` of which requests must carry one, if there are any, those of `LOADING_ROUTES`,
    `FEEDBACK_ROUTES` and `PAGE_ROUTES` that the endpoint has, and whether calls of functions are read out of the replies to
    chats."""

    keys: Sequence[KeyHash]
    limits: Limits
    optional_routes: Set[tuple[str, str]] = frozenset()
    reads_calls: bool = True


class Guard:
    """ASGI middleware: lets through what the rules allow and answers everything else itself, with OpenAI's error object.

    `use_model` stands around requests that generate. Requests that need an engine wait for it at the `admission`, where there is
    one; once it has died they are told to come back, those among them that it was answering."""

    def __init__(
        self,
        app: Any,
        rules: Rules,
        use_model: UseModel = lambda _: nullcontext(),
        has_died: Callable[[], bool] = lambda: False,
        admission: Admission | None = None,
    ) -> None:
        self.app = app
        self._has_died = has_died
        self._has_said_so = False
        self._rules = rules
        self._use_model = use_model
        self._admission = admission
        self._allowed = OPEN_ROUTES | LISTING_ROUTES | GENERATING_ROUTES | SEARCHING_ROUTES | rules.optional_routes
        # Ray Serve names its metrics and log lines by these.
        self.routes = [Route(path, app, methods=[method]) for method, path in sorted(self._allowed)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            async with AsyncExitStack() as until_answered:
                try:
                    receive, model = await self._admit(scope, receive)
                    if scope["path"] in _ENGINE_PATHS:
                        self._refuse_without_engine()
                        if self._admission:
                            await until_answered.enter_async_context(self._admission.admit())
                            self._refuse_without_engine()
                    until_answered.enter_context(self._use_model(model))
                except RefusalError as refusal:
                    await build_answer(refusal)(scope, receive, send)
                    return
                if scope["path"] in _ENGINE_PATHS:
                    await self._answer_by_engine(scope, receive, send)
                else:
                    await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    def _refuse_without_engine(self) -> None:
        if self._has_died():
            raise self._note_death()

    def _note_death(self) -> RefusalError:
        """The refusal (503) of requests once the engine has died, which is logged once."""
        if not self._has_said_so:
            self._has_said_so = True
            _logger.error("the engine has died: requests get 503 until Ray Serve has started another one")
        return RefusalError(503, ENGINE_HAS_DIED)

    async def _answer_by_engine(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the application answer. Of a request that fails with the engine it is said what is said of those that come after
        it, whether the application answers that it failed, raises, or does both, as vLLM's does."""
        has_begun = is_replaced = False

        async def send_or_refuse(message: Message) -> None:
            nonlocal has_begun, is_replaced
            if message["type"] == "http.response.start" and message["status"] >= 500 and self._has_died():
                is_replaced = True
            if not is_replaced:
                has_begun = True
                await send(message)

        try:
            await self.app(scope, receive, send_or_refuse)
        except Exception:
            if has_begun or not self._has_died():
                raise
            is_replaced = True
        if is_replaced:
            await build_answer(self._note_death())(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive) -> tuple[Receive, str]:
        """The request's body and the model that is to generate, empty for none, if it may go through. Raises RefusalError where
        it may not."""
        route = (scope["method"], scope["path"])
        if route not in self._allowed:
            methods = ", ".join(sorted(method for method, path in self._allowed if path == scope["path"]))
            if methods:  # the answer that MCP's clients expect where there is no stream to listen to
                raise RefusalError(405, f"{scope['path']} takes {methods}, got {scope['method'][:20]}.", {"Allow": methods})
            raise RefusalError(404, f"{scope['method']} {scope['path'][:200]} is not a route of this endpoint.")
        if route in OPEN_ROUTES | PAGE_ROUTES:
            return receive, ""
        headers = Headers(scope=scope)
        if self._rules.keys:
            scope[GROUPS] = _find_key(self._rules.keys, headers).groups
        else:
            check_is_local(scope, headers)
        if route in LISTING_ROUTES:
            return receive, ""
        body = await _read_body(headers, receive, self._rules.limits)
        parsed = parse_body(body)
        self._rules.limits.check_values(parsed)
        if route not in GENERATING_ROUTES:
            return replay(body, receive), ""
        self._rules.limits.check_generation(parsed)
        if scope["path"] == _CHAT_PATH and not self._rules.reads_calls:
            _refuse_functions(parsed)
        scope[STREAMED] = parsed.get("stream") is True
        model = parsed.get("model")
        return replay(body, receive), model if isinstance(model, str) else ""  # vLLM says what is wrong with another


def _find_key(keys: Sequence[KeyHash], headers: Headers) -> KeyHash:
    scheme, _, candidate = headers.get("authorization", "").partition(" ")
    key = find_key(keys, candidate.strip().encode()) if scheme.lower() == "bearer" else None
    if key is None:
        raise RefusalError(401, "this endpoint needs a key, as `Authorization: Bearer KEY`, and got none or a wrong one.")
    return key


def check_is_local(scope: Scope, headers: Headers) -> None:
    """RefusalError (403) of a request from another machine, by another name than localhost, or from a web page of another
    address."""
    host, _ = scope.get("client") or ("", 0)
    address = f"http://{headers.get('host', '')}"
    if not is_loopback(host):
        raise RefusalError(403, "this endpoint has no key, so it answers only this machine.")
    if not _is_local_url(address) or headers.get("origin", address).lower() != address.lower():
        raise RefusalError(403, "this endpoint has no key, and so it answers no web page and no other name than localhost.")


def _is_local_url(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


async def _read_body(headers: Headers, receive: Receive, limits: Limits) -> bytes:
    length = headers.get("content-length", "")
    if length.isdecimal():
        limits.check_size(int(length))
    parts, num_bytes, is_whole = [], 0, False
    while not is_whole:
        try:
            async with asyncio.timeout(_BODY_PART_S):
                message = await receive()
        except TimeoutError:
            raise RefusalError(408, f"nothing of the request's body came for {_BODY_PART_S:g} s.") from None
        if message["type"] == "http.disconnect":
            raise RefusalError(400, "the request ended before its body did.")
        parts.append(message.get("body", b""))
        num_bytes += len(parts[-1])
        limits.check_size(num_bytes)  # what a request says of its length need not be so
        is_whole = not message.get("more_body", False)
    return b"".join(parts)


def _refuse_functions(body: dict[str, Any]) -> None:
    if body.get("tools") and body.get("tool_choice") != "none":
        raise RefusalError(
            400,
            "tools: this endpoint reads no calls of functions out of replies, since it knows no parser for its model's family. "
            "Start it with --serve.tool-call-parser NAME, or leave tools out.",
        )


def replay(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """Give the body that was read, then go on with what comes after it."""
    messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


def build_answer(refusal: RefusalError) -> JSONResponse:
    """A refusal as a response with OpenAI's error object."""
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": str(_RETRY_AFTER_S)}}
    headers = headers.get(refusal.status, {}) | refusal.headers
    return JSONResponse(build_error(refusal), status_code=refusal.status, headers=headers)


def build_error(refusal: RefusalError) -> dict[str, Any]:
    """A refusal as OpenAI's error object."""
    error_type = _ERROR_TYPES.get(refusal.status, "BadRequestError")
    return {"error": {"message": str(refusal), "type": error_type, "param": None, "code": refusal.status}}
