"""The routes beside those of vLLM: /v1/search, /v1/ask and /mcp, and those that load and unload adapters.

These have vLLM's names and fields. Its own would change the one engine that a request reaches, and drop from it an adapter that
requests still use.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from drag_ray.agent.record import AgentRecord
from drag_ray.agent.spans import open_tracer
from drag_ray.cluster.metrics import RayRequestRecorder
from drag_ray.engine.image_inputs import ServedImageInputs
from drag_ray.engine.models.adapter import read_base_model
from drag_ray.engine.vllm_client import VllmClient
from drag_ray.search.index import read_fingerprint
from drag_ray.search.searcher import Searcher
from drag_ray.serve.adapters.adapter_files import AdapterFolders
from drag_ray.serve.adapters.adapter_registry import CallRegistry
from drag_ray.serve.adapters.engine_adapters import UseModel
from drag_ray.serve.ingress.guard import build_answer, build_error
from drag_ray.serve.ingress.limits import Limits, RefusalError, parse_body
from drag_ray.serve.search.mcp_tools import add_mcp_route
from drag_ray.serve.search.messages import Answer, AskAnswer, AskRequest, SearchRequest, TurnAnswer, read_request
from drag_ray.serve.search.request_images import EndpointImages
from drag_ray.serve.search.retrieval import open_retrieval
from drag_ray.serve.search.search_service import SearchService
from drag_ray.serve.served_models import ServedModels
from drag_ray.serve.settings import AppSettings

_NO_INDEX = (
    "this endpoint has no search index: the run that it serves had none when it started. Run the index stage "
    "(python jobs/index.py), then start the endpoint again with the same --run-dir."
)
_Handler = Callable[[Request], Awaitable[Response]]


def add_search_routes(app: Any) -> None:
    """Add the routes to a Starlette application; they answer once `app.state.search_service` is set, to None without an index.
    Those of MCP answer during the application's lifespan."""
    app.add_route("/v1/search", _refusing(_search), methods=["POST"])
    app.add_route("/v1/ask", _refusing(_ask), methods=["POST"])
    add_mcp_route(app, lambda: _require_service(app))


def open_search_service(
    settings: AppSettings, engine: Any, adapters: Mapping[str, Any], use_model: UseModel
) -> SearchService | None:
    """The search service with an engine; None for an endpoint without an index.

    Args:
        settings: what is served.
        engine: vLLM's `AsyncLLM`.
        adapters, use_model: as of `ServedModels`.
    """
    if not settings.index_dir:
        return None
    base_name, index_dir = settings.serve.served_name, Path(settings.index_dir)
    default_name, own = next(iter(settings.adapters), base_name), AgentRecord(agent=settings.agent)
    models = ServedModels(adapters, base_name, default_name, own, use_model, settings.question_weights)
    images = EndpointImages(index_dir.parent) if engine.model_config.is_multimodal_model else None
    image_inputs = ServedImageInputs(images.open) if images else None
    client = VllmClient(engine, settings.engine.model_copy(update={"logprobs": False}), image_inputs)
    searcher = Searcher(index_dir)
    retrieval = open_retrieval(searcher, Path(settings.vectors_dir), settings.serve.retrieval, settings.serve.rerank)
    run, _ = open_tracer(settings.telemetry, "vllm", {"drag_ray.stage": "serve"})
    return SearchService(searcher, retrieval, models, client.draw, Limits(settings.serve), RayRequestRecorder(), run, images)


def open_adapter_folders(settings: AppSettings, model: str) -> AdapterFolders:
    """The folders from which requests may load adapters.

    Args:
        settings: what is served.
        model: the folder of its base model.
    """
    base = read_base_model(model, name=settings.engine.model)
    fingerprint = read_fingerprint(Path(settings.index_dir)) if settings.index_dir else ""
    return AdapterFolders(settings.serve, base, settings.agent, settings.max_lora_rank, fingerprint)


def add_adapter_routes(app: Any, folders: AdapterFolders, call_registry: CallRegistry) -> None:
    """Add the routes to a Starlette application.

    Args:
        app: the application.
        folders: what may be loaded.
        call_registry: loads into all engines.
    """

    async def load(request: Request) -> Response:
        wanted = folders.check(parse_body(await request.body()))
        await call_registry("load", wanted.name, wanted.path, wanted.replaces)
        return PlainTextResponse(f"Success: LoRA adapter '{wanted.name}' added successfully.{wanted.warning}")

    async def unload(request: Request) -> Response:
        name = parse_body(await request.body()).get("lora_name")
        if not isinstance(name, str):
            raise RefusalError(400, "lora_name must be a string.")
        await call_registry("unload", name)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    app.add_route("/v1/load_lora_adapter", _refusing(load), methods=["POST"])
    app.add_route("/v1/unload_lora_adapter", _refusing(unload), methods=["POST"])


def _require_service(app: Any) -> SearchService:
    """The application's search service.

    Raises:
        RefusalError: it has no index.
    """
    service: SearchService | None = app.state.search_service
    if service is None:
        raise RefusalError(404, _NO_INDEX)
    return service


def _refusing(handle: _Handler) -> _Handler:
    """A handler whose refusals are answers."""

    async def handle_or_refuse(request: Request) -> Response:
        try:
            return await handle(request)
        except RefusalError as refusal:
            return build_answer(refusal)

    return handle_or_refuse


async def _search(request: Request) -> Response:
    wanted = read_request(SearchRequest, parse_body(await request.body()))
    return _to_response(await _require_service(request.app).search(wanted))


async def _ask(request: Request) -> Response:
    wanted = read_request(AskRequest, parse_body(await request.body()))
    answers = _require_service(request.app).ask(wanted)
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
