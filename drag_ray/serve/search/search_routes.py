"""The routes of the agent beside those of vLLM: /v1/search and /v1/ask."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from drag_ray.serve.access.guard import build_answer, build_error
from drag_ray.serve.access.limits import RefusalError
from drag_ray.serve.requests import AskRequest, SearchRequest, read_request
from drag_ray.serve.search.answers import Answer, AskAnswer, TurnAnswer
from drag_ray.serve.search.search_service import SearchService

_NO_INDEX = (
    "this endpoint has no search index: the run that it serves had none when it started. Run the index stage "
    "(python jobs/index.py), then start the endpoint again with the same --run-dir."
)
_Handler = Callable[[Request], Awaitable[Response]]


def add_search_routes(app: Any) -> None:
    """Add the routes to a Starlette application; they answer once `app.state.search_service` is set, to None without an index."""
    app.add_route("/v1/search", refusing(_search), methods=["POST"])
    app.add_route("/v1/ask", refusing(_ask), methods=["POST"])


def require_service(app: Any) -> SearchService:
    """The application's search service.

    Raises:
        RefusalError: it has no index.
    """
    service: SearchService | None = app.state.search_service
    if service is None:
        raise RefusalError(404, _NO_INDEX)
    return service


def refusing(handle: _Handler) -> _Handler:
    """A handler whose refusals are answers."""

    async def handle_or_refuse(request: Request) -> Response:
        try:
            return await handle(request)
        except RefusalError as refusal:
            return build_answer(refusal)

    return handle_or_refuse


async def _search(request: Request) -> Response:
    wanted = read_request(SearchRequest, await request.body())
    return _to_response(await require_service(request.app).search(wanted))


async def _ask(request: Request) -> Response:
    wanted = read_request(AskRequest, await request.body())
    answers = require_service(request.app).ask(wanted)
    first = await anext(answers)  # what is wrong with the request shows here, while the status can still say so
    if wanted.stream:
        return StreamingResponse(_to_events(first, answers), media_type="text/event-stream")
    return _to_response([first, *[answer async for answer in answers]][-1])


def _to_response(answer: Answer) -> JSONResponse:
    return JSONResponse(answer.model_dump(mode="json"))


async def _to_events(first: TurnAnswer | AskAnswer, answers: AsyncGenerator[TurnAnswer | AskAnswer]) -> AsyncIterator[str]:
    """Server-sent events: a `turn` each, then `answer`, or `error` with OpenAI's error object."""
    async with aclosing(answers):  # who hangs up ends the agent's work
        yield _to_event(first.type, first.model_dump(mode="json"))
        try:
            async for answer in answers:
                yield _to_event(answer.type, answer.model_dump(mode="json"))
        except RefusalError as refusal:
            yield _to_event("error", {"type": "error", **build_error(refusal)})


def _to_event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
