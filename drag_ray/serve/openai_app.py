"""vLLM's own OpenAI-compatible application around one engine, with the routes beside those of vLLM, behind the guard.

The one place that knows how vLLM builds it.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from drag_ray.agent.record import AgentRecord
from drag_ray.agent.spans import RolloutTracer
from drag_ray.cluster.metrics import RayRequestRecorder
from drag_ray.corpus.picture import MAX_PIXELS
from drag_ray.engine.image_inputs import ServedImageInputs
from drag_ray.engine.models.adapter import read_base_model
from drag_ray.engine.vllm import build_engine_args, count_adapter_places
from drag_ray.engine.vllm_client import VllmClient
from drag_ray.feedback.log import DIR_NAME as FEEDBACK_DIR_NAME
from drag_ray.search import vectors
from drag_ray.search.index import read_fingerprint
from drag_ray.search.searcher import Searcher
from drag_ray.serve.adapters.adapter_files import AdapterFolders
from drag_ray.serve.adapters.engine_adapters import CallRegistry, EngineAdapters, UseModel, build_table
from drag_ray.serve.ingress.guard import (
    FEEDBACK_PATH,
    FEEDBACK_ROUTES,
    GROUPS,
    LOADING_ROUTES,
    PAGE_ROUTES,
    Guard,
    Rules,
    build_answer,
    build_error,
)
from drag_ray.serve.ingress.limits import Limits, RefusalError, parse_body
from drag_ray.serve.ingress.queues import REQUESTS_PER_SEQUENCE, Admission, Preparation, end_turns_at
from drag_ray.serve.ingress.stream_pacing import StreamPacing
from drag_ray.serve.search.champions import Champions
from drag_ray.serve.search.feedback_service import FeedbackService, Sender, check_size
from drag_ray.serve.search.live_index import IndexFolders, LiveIndex
from drag_ray.serve.search.mcp_tools import add_mcp_route
from drag_ray.serve.search.messages import (
    Answer,
    AskAnswer,
    AskRequest,
    FeedbackRequest,
    PageRequest,
    SearchRequest,
    TurnAnswer,
    read_request,
)
from drag_ray.serve.search.request_images import EndpointImages
from drag_ray.serve.search.retrieval import open_retrieval
from drag_ray.serve.search.search_service import SearchService
from drag_ray.serve.search.trials import TrialService
from drag_ray.serve.served_models import ServedModels
from drag_ray.serve.settings import AppSettings
from drag_ray.serve.web_page import answer_page

_NO_INDEX = (
    "this endpoint has no search index: the run that it serves had none when it started. Run the index stage "
    "(python jobs/index.py), then start the endpoint again with the same --run-dir."
)


def add_search_routes(app: Any) -> None:
    """Add the routes to a Starlette application; they answer once `app.state.live_index` is set, to None without an index.
    Those of MCP answer during the application's lifespan."""
    app.add_route("/v1/index", _refusing(_describe_index), methods=["GET"])
    app.add_route("/v1/search", _refusing(_search), methods=["POST"])
    app.add_route("/v1/ask", _refusing(_ask), methods=["POST"])
    app.add_route("/v1/page", _refusing(_read_page), methods=["POST"])
    add_mcp_route(app, _find_service)


def add_feedback_route(app: Any, feedback: FeedbackService, trials: TrialService) -> None:
    """Add `/v1/feedback` to a Starlette application, whose searches are kept and answered with ids from now on, and of which some
    take part in a trial."""

    async def take(request: Request) -> Response:
        body = await request.body()
        check_size(body)
        mark = read_request(FeedbackRequest, parse_body(body))
        return _to_response(await feedback.take(mark, _find_sender(request)))

    app.state.feedback, app.state.trials = feedback, trials
    app.add_route(FEEDBACK_PATH, _refusing(take), methods=["POST"])


def add_page_route(app: Any, has_key: bool, takes_feedback: bool) -> None:
    """Add the page for people to a Starlette application. It holds nothing of the collection: its script asks other routes."""

    async def show(request: Request) -> Response:
        live_index: LiveIndex | None = getattr(request.app.state, "live_index", None)  # while the endpoint starts there is none
        takes_images = live_index.service.takes_images if live_index else ""
        values = {"has_key": has_key, "takes_feedback": takes_feedback, "takes_images": takes_images}
        return answer_page("serve/search_page.html.j2", **values)

    app.add_route("/", show, methods=["GET"])


def open_live_index(
    settings: AppSettings, engine: Any, adapters: Mapping[str, Any], use_model: UseModel, champions: Champions | None = None
) -> LiveIndex | None:
    """The index with an engine; None for an endpoint without one."""
    if not settings.index_dir:
        return None
    base_name = settings.serve.served_name
    default_name, own = next(iter(settings.adapters), base_name), AgentRecord(agent=settings.agent)
    models = ServedModels(adapters, base_name, default_name, own, use_model, settings.question_weights)
    recorder, tracer = RayRequestRecorder(), RolloutTracer(settings.telemetry, "vllm", {"drag_ray.stage": "serve"})

    def open_service(folders: IndexFolders) -> SearchService:
        images = EndpointImages(folders.index.path) if engine.model_config.is_multimodal_model else None
        image_inputs = ServedImageInputs(images.open) if images else None
        client = VllmClient(engine, settings.engine.model_copy(update={"logprobs": False}), image_inputs)
        searcher = Searcher(folders.index.path / "search_index", holder=folders)
        vectors_dir = (folders.embed or folders.index).path / vectors.DIR_NAME
        retrieval = open_retrieval(searcher, vectors_dir, settings.serve.retrieval, settings.serve.rerank)
        return SearchService(
            searcher, retrieval, models, client.draw, Limits(settings.serve), recorder, tracer, images, champions
        )

    return LiveIndex(settings, open_service)


def open_adapter_folders(settings: AppSettings, model: str) -> AdapterFolders:
    """The folders from which requests may load adapters."""
    base = read_base_model(model, name=settings.engine.model)
    fingerprint = read_fingerprint(Path(settings.index_dir)) if settings.index_dir else ""
    return AdapterFolders(settings.serve, base, settings.agent, settings.max_lora_rank, fingerprint)


def add_adapter_routes(app: Any, folders: AdapterFolders, call_registry: CallRegistry) -> None:
    """Add the routes that load and unload adapters to a Starlette application.

    They have vLLM's names and fields. Its own would change the one engine that a request reaches, and drop from it an adapter
    that requests still use.
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


def _require_index(request: Request) -> LiveIndex:
    """The application's index. Raises RefusalError: it has none."""
    live_index: LiveIndex | None = request.app.state.live_index
    if live_index is None:
        raise RefusalError(404, _NO_INDEX)
    return live_index


async def _find_service(request: Request) -> SearchService:
    """The search service for the key of a request: of one index until the request's end. Raises RefusalError where there is no
    index, or none that the key may see."""
    return await _require_index(request).service.limit_to(request.scope.get(GROUPS))


def _refusing(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose refusals are answers. Handlers of exceptions that are given to vLLM's application come too late."""

    async def handle_or_refuse(request: Request) -> Response:
        try:
            return await handle(request)
        except RefusalError as refusal:
            return build_answer(refusal)

    return handle_or_refuse


async def _describe_index(request: Request) -> Response:
    service = await _find_service(request)
    return _to_response(await asyncio.to_thread(service.index.describe, _require_index(request).problem))


async def _search(request: Request) -> Response:
    wanted = read_request(SearchRequest, parse_body(await request.body()))
    service, trials = await _find_service(request), getattr(request.app.state, "trials", None)
    if isinstance(trials, TrialService):
        return _to_response(await trials.search(service, wanted, _find_sender(request)))
    return _to_response(await service.search(wanted))


async def _read_page(request: Request) -> Response:
    wanted = read_request(PageRequest, parse_body(await request.body()))
    return _to_response(await (await _find_service(request)).read_page(wanted.file, wanted.page_number, wanted.edge))


async def _ask(request: Request) -> Response:
    wanted = read_request(AskRequest, parse_body(await request.body()))
    answers = _note_last(request, wanted, (await _find_service(request)).ask(wanted))
    first = await anext(answers)  # what is wrong with the request shows here, while the status can still say so
    if wanted.stream:
        return StreamingResponse(_to_events(first, answers), media_type="text/event-stream")
    return _to_response([first, *[answer async for answer in answers]][-1])


async def _note_last(
    request: Request, wanted: AskRequest, answers: AsyncGenerator[TurnAnswer | AskAnswer]
) -> AsyncGenerator[TurnAnswer | AskAnswer]:
    """The same, of which the answer at the end has a search id, where feedback is taken."""
    async with aclosing(answers):
        async for answer in answers:
            feedback: FeedbackService | None = getattr(request.app.state, "feedback", None)
            if feedback and isinstance(answer, AskAnswer):
                answer = await feedback.note(answer, wanted.session, _find_sender(request))
            yield answer


def _find_sender(request: Request) -> Sender:
    return Sender(request.client.host if request.client else "", request.scope.get(GROUPS))


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


NO_MEDIA_DOMAINS = ["none: send images as data: URLs"]
"""vLLM takes an empty list for every domain. This one names none, for no host name holds a colon, and stands in the refusal."""

_ANY_NUMBER = 1_000_000


async def build_openai_app(
    settings: AppSettings, adapters: EngineAdapters, call_registry: CallRegistry, count_replicas: Callable[[], int]
) -> tuple[Any, Any]:
    """Start an engine, and build the application that serves it: (ASGI application behind the guard, engine).

    `adapters` takes the engine's adapters over and loads those of the settings, `call_registry` loads and unloads them for
    requests; `count_replicas` says how many answer behind the same address."""
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    engine_args = build_serving_args(settings)
    # The batches of `vllm serve`: on an H100 or H200 they hold four times the tokens of the class's own default.
    engine = AsyncLLM.from_engine_args(engine_args, usage_context=UsageContext.OPENAI_API_SERVER)
    supported_tasks = await engine.get_supported_tasks()
    guard = build_guarded_app(settings, engine_args.model, supported_tasks, adapters, call_registry)
    _, init_app_state, _ = _import_server()
    state = guard.app.state
    await init_app_state(engine, state, state.args, supported_tasks)
    by_name = state.openai_serving_models.lora_requests
    adapters.start(engine, by_name)
    await adapters.hold(build_table(settings.adapters), needs_all=True)
    state.live_index = open_live_index(settings, engine, by_name, adapters.use, state.champions)
    if state.live_index and settings.serve.index_check_s:
        state.watching = asyncio.create_task(state.live_index.watch())  # a task that nothing refers to may be collected
    end_turns_at(engine)
    guard.app = StreamPacing(Preparation(guard.app), count_replicas, partial(_pack_events, engine))
    return guard, engine


def _pack_events(engine: Any, num_tokens: int) -> None:
    """Have events of streams that begin from now on hold so many tokens, but for their first and last: vLLM's option
    `stream_interval`, which it reads for each request."""
    engine.output_processor.stream_interval = num_tokens


def build_serving_args(settings: AppSettings) -> Any:
    """vLLM's `AsyncEngineArgs` for an engine that requests reach: closed to media from elsewhere, with room for adapters where
    there are any or may be.

    An engine with that room runs its kernels for adapters in every layer, for requests to the base model too. Where no CUDA graph
    holds them, as in steps that read prompts, launching them takes longer than the step.
    """
    config = settings.serve
    adapters: dict[str, Any] = {}
    if settings.adapters or config.adapter_dirs:
        adapters = {
            "enable_lora": True,
            "max_lora_rank": settings.max_lora_rank,
            "max_loras": count_adapter_places(config.adapter_places),
            # An adapter that left main memory would be read again from a folder that may have changed.
            "max_cpu_loras": _ANY_NUMBER,
        }
    return build_engine_args(
        settings.engine,
        served_model_name=[config.served_name],
        **adapters,
        reasoning_parser=settings.parsers.reasoning,
        allowed_media_domains=NO_MEDIA_DOMAINS,
        allowed_local_media_path="",
        disable_log_stats=True,  # kept for each token, to be read at a route that the guard closes
        override_generation_config={"max_new_tokens": config.max_tokens},  # where a request sets no length
    )


def build_guarded_app(
    settings: AppSettings, model: str, supported_tasks: Any, adapters: EngineAdapters, call_registry: CallRegistry
) -> Guard:
    """vLLM's application with all of its routes, behind the guard; it answers once `init_app_state` has given it an engine."""
    os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = str(False)  # that is for the routes of `add_adapter_routes`
    os.environ.pop("VLLM_API_KEY", None)  # one key, the guard's
    os.environ["VLLM_MAX_IMAGE_PIXELS"] = str(MAX_PIXELS)
    config, reads_calls = settings.serve, bool(settings.parsers.tool_calls)
    build_app, _, make_arg_parser = _import_server()
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", model])
    arguments.served_model_name = [config.served_name]
    arguments.enable_auto_tool_choice = reads_calls
    arguments.tool_call_parser = settings.parsers.tool_calls or None
    arguments.structured_outputs_config.reasoning_parser = settings.parsers.reasoning
    arguments.allowed_origins = []  # no web page reads an answer
    arguments.disable_fastapi_docs = True
    app = build_app(arguments, supported_tasks)
    add_search_routes(app)
    app.state.champions = champions = Champions(Path(settings.run_dir), settings.trial) if settings.run_dir else None
    if config.feedback.enabled and champions:
        feedback = FeedbackService(Path(settings.run_dir) / FEEDBACK_DIR_NAME, config.feedback)
        add_feedback_route(app, feedback, TrialService(feedback, champions, config.trial.share))
    if config.page:
        add_page_route(app, bool(settings.keys), takes_feedback=config.feedback.enabled)
    if config.adapter_dirs:
        add_adapter_routes(app, open_adapter_folders(settings, model), call_registry)

    def has_died() -> bool:
        return app.state.engine_client.errored

    limits = Limits(config, settings.allows_prompt_logprobs)
    optional = ((LOADING_ROUTES, config.adapter_dirs), (FEEDBACK_ROUTES, config.feedback.enabled), (PAGE_ROUTES, config.page))
    routes = frozenset().union(*(routes for routes, is_there in optional if is_there))
    rules = Rules(settings.keys, limits, routes, reads_calls)
    max_ongoing = REQUESTS_PER_SEQUENCE * settings.engine.max_num_seqs
    return Guard(app, rules, adapters.use, has_died, Admission(max_ongoing, config.max_queued_requests, config.max_wait_s))


def _import_server() -> tuple[Any, Any, Any]:
    """(build_app, init_app_state, make_arg_parser), which vLLM moved after 0.26."""
    try:
        from vllm.entrypoints.launchers.api_server.app_state import init_app_state
        from vllm.entrypoints.launchers.app import build_app
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.openai.api_server import build_app, init_app_state
        from vllm.entrypoints.openai.cli_args import make_arg_parser  # pyright: ignore[reportMissingImports]
    return build_app, init_app_state, make_arg_parser
